// SPDX-License-Identifier: Apache-2.0
//
// The Qwen3.5 text forward pass, written once over the operations of a backend.
// Source of the arithmetic: the public Qwen3.5 checkpoint and its Transformers implementation.
//
// T rows (tokens of all sequences of the batch), B sequences, H hidden, I intermediate,
// Hq query heads and Hkv KV heads of D, Hk key heads of Dk and Hv value heads of Dv (GDN).
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "backend/batch.h"
#include "backend/host_tensor.h"
#include "model/config.h"
#include "model/tensors.h"

namespace cua::model {

// By canonical name (model/tensors.h); present, of the right shape.
using TensorSource = std::function<const backend::HostTensor &(const std::string &name)>;

// Room that the weights take in a backend that keeps them in an arena.
template <class B>
size_t weight_bytes(const Config &config, const TensorSource &source) {
  size_t bytes = 0;
  for (const TensorSpec &spec : tensors(config)) {
    const backend::HostTensor &tensor = source(spec.name);
    bytes += spec.shape.size() == 2 ? B::matrix_bytes(tensor) : B::vector_bytes(tensor);
  }
  return bytes;
}

template <class B>
class Forward {
 public:
  using Batch = backend::Batch<typename B::State>;
  using Rows = backend::Rows;

  // The host tensors must outlive this object where the backend keeps them mapped.
  Forward(B &backend, const Config &config, const TensorSource &source)
      : backend_(backend), config_(config) {
    const auto matrix = [&](const std::string &prefix, std::initializer_list<const char *> names) {
      std::vector<backend::HostTensor> stack;
      for (const char *name : names) stack.push_back(source(prefix + name));
      return backend_.matrix(stack);
    };
    const auto vector = [&](const std::string &name) { return backend_.vector(source(name)); };

    embedding_ = matrix("", {"embed_tokens.weight"});
    layers_.resize(config.layers.size());
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer &layer = layers_[i];
      const std::string at = "layers." + std::to_string(i) + ".";
      layer.input_norm = vector(at + "input_layernorm.weight");
      layer.post_norm = vector(at + "post_attention_layernorm.weight");
      layer.gate_up = matrix(at + "mlp.", {"gate_proj.weight", "up_proj.weight"});
      layer.down = matrix(at + "mlp.", {"down_proj.weight"});
      if (config.layers[i] == LayerKind::gdn) {
        const std::string gdn = at + "linear_attn.";
        layer.qkvzba = matrix(gdn, {"in_proj_qkv.weight", "in_proj_z.weight", "in_proj_b.weight",
                                    "in_proj_a.weight"});
        layer.conv = vector(gdn + "conv1d.weight");
        layer.a_log = vector(gdn + "A_log");
        layer.dt_bias = vector(gdn + "dt_bias");
        layer.gdn_norm = vector(gdn + "norm.weight");
        layer.out = matrix(gdn, {"out_proj.weight"});
      } else {
        const std::string attention = at + "self_attn.";
        layer.qkv = matrix(attention, {"q_proj.weight", "k_proj.weight", "v_proj.weight"});
        layer.q_norm = vector(attention + "q_norm.weight");
        layer.k_norm = vector(attention + "k_norm.weight");
        layer.out = matrix(attention, {"o_proj.weight"});
      }
    }
    norm_ = vector("norm.weight");
  }

  // Scores every sequence of the batch.
  //   letters  the embedding rows to read out
  //   logits   [B, 26], host
  //   hidden   [B, H], host, after the final norm; nullptr: not wanted
  void run(const Batch &batch, const std::array<uint32_t, 26> &letters, float *logits,
           float *hidden = nullptr) {
    const auto pass = backend_.begin(batch);
    Tensor x = backend_.tensor(batch.rows(), config_.hidden);  // the residual stream
    const Tensor last = backend_.tensor(batch.sequences(), config_.hidden);
    backend_.embed(batch, embedding_, x);
    for (size_t index = 0; index < layers_.size(); ++index) {
      const auto scratch = backend_.scratch();
      const Layer &layer = layers_[index];
      // Of the last layer only each sequence's last row is read.
      const Rows rows = index + 1 < layers_.size() ? Rows::all : Rows::last;
      const Tensor y = backend_.tensor(batch.rows(), config_.hidden);
      backend_.rms_norm(x, layer.input_norm, y);
      const Tensor mixed = config_.layers[index] == LayerKind::gdn
                               ? gated_delta_net(batch, index, rows, y)
                               : attention(batch, index, rows, y);
      if (rows == Rows::last) {
        backend_.gather_last(batch, x, last);
        x = last;
      }
      backend_.linear_add(mixed, layer.out, x);
      mlp(layer, x);
    }
    const auto scratch = backend_.scratch();
    const Tensor y = backend_.tensor(x.rows, config_.hidden);
    backend_.rms_norm(x, norm_, y);
    backend_.readout(y, embedding_, letters, logits, hidden);
  }

 private:
  using Tensor = typename B::Tensor;
  using Gates = typename B::Gates;
  using Matrix = typename B::Matrix;
  using Vector = typename B::Vector;

  struct Layer {
    Vector input_norm, post_norm;           // [H]
    Matrix qkvzba;                          // GDN: [2 Hk Dk + Hv Dv | Hv Dv | Hv | Hv, H]
    Vector conv, a_log, dt_bias, gdn_norm;  // GDN: [2 Hk Dk + Hv Dv, 1, 4], [Hv], [Hv], [Dv]
    Matrix qkv;                             // attention: [2 Hq D | Hkv D | Hkv D, H]
    Vector q_norm, k_norm;                  // attention: [D]
    Matrix out;                             // [H, Hv Dv] or [H, Hq D]
    Matrix gate_up, down;                   // [2 I, H], [H, I]
  };

  // [T, H] -> [T or B, Hv Dv]
  Tensor gated_delta_net(const Batch &batch, size_t index, Rows rows, const Tensor &y) {
    const Layer &layer = layers_[index];
    const size_t T = batch.rows();
    const uint32_t channels = config_.conv_channels(), width = config_.gdn_value_width();
    const Tensor projected = backend_.tensor(T, layer.qkvzba.rows);
    backend_.linear(y, layer.qkvzba, projected);
    const Tensor q = backend_.tensor(T, config_.gdn_key_width());
    const Tensor k = backend_.tensor(T, config_.gdn_key_width());
    const Tensor v = backend_.tensor(T, width);
    const Gates g = backend_.gates(T);     // log of the decay
    const Gates beta = backend_.gates(T);  // step of the delta rule
    backend_.gdn_prepare(batch, index, projected, layer.conv, layer.a_log, layer.dt_bias, q, k, v,
                         g, beta);
    Tensor o = backend_.tensor(T, width);
    backend_.gdn_scan(batch, index, q, k, v, g, beta, o);
    Tensor z = projected.columns(channels, width);
    if (rows == Rows::last) {
      o = gather(batch, o);
      z = gather(batch, z);
    }
    backend_.gated_norm(o, z, layer.gdn_norm, o);
    return o;
  }

  // [T, H] -> [T or B, Hq D]
  Tensor attention(const Batch &batch, size_t index, Rows rows, const Tensor &y) {
    const Layer &layer = layers_[index];
    const size_t T = batch.rows();
    const uint32_t q_width = config_.heads * config_.head_dim;
    const uint32_t kv_width = config_.kv_heads * config_.head_dim;
    Tensor q_gate, kv;  // per head D of q, then D of its gate; k, then v
    if (rows == Rows::all) {
      const Tensor projected = backend_.tensor(T, 2 * q_width + 2 * kv_width);
      backend_.linear(y, layer.qkv, projected);
      q_gate = projected.columns(0, 2 * q_width);
      kv = projected.columns(2 * q_width, 2 * kv_width);
    } else {
      kv = backend_.tensor(T, 2 * kv_width);
      backend_.linear(y, layer.qkv.slice(2 * q_width, 2 * kv_width), kv);
      q_gate = backend_.tensor(batch.sequences(), 2 * q_width);
      backend_.linear(gather(batch, y), layer.qkv.slice(0, 2 * q_width), q_gate);
    }
    backend_.attention_prepare(batch, index, rows, q_gate, kv, layer.q_norm, layer.k_norm);
    const Tensor o = backend_.tensor(q_gate.rows, q_width);
    backend_.attention(batch, index, rows, q_gate, kv, o);
    return o;
  }

  // x += down(silu(gate(norm(x))) * up(norm(x)))
  void mlp(const Layer &layer, const Tensor &x) {
    const Tensor y = backend_.tensor(x.rows, config_.hidden);
    backend_.rms_norm(x, layer.post_norm, y);
    const Tensor gate_up = backend_.tensor(x.rows, 2 * config_.intermediate);
    backend_.linear(y, layer.gate_up, gate_up);
    const Tensor h = backend_.tensor(x.rows, config_.intermediate);
    backend_.silu_mul(gate_up, h);
    backend_.linear_add(h, layer.down, x);
  }

  Tensor gather(const Batch &batch, const Tensor &all) {
    const Tensor last = backend_.tensor(batch.sequences(), all.cols);
    backend_.gather_last(batch, all, last);
    return last;
  }

  B &backend_;
  Config config_;
  Matrix embedding_;  // [V, H]
  std::vector<Layer> layers_;
  Vector norm_;  // [H]
};

}  // namespace cua::model
