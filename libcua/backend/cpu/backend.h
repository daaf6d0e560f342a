// SPDX-License-Identifier: Apache-2.0
//
// The operations of the forward pass in plain C++: what they mean, and a library that runs
// anywhere. Activations are Real throughout (float in the product, double as the tests' oracle);
// weights stay as they are stored, mapped, and are widened block by block.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/batch.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/thread_pool.h"
#include "backend/dimensions.h"
#include "backend/host_tensor.h"

namespace cua::backend::cpu {

template <class Real>
class Backend {
 public:
  // A view of rows in scratch memory: data[row * stride + column].
  struct Tensor {
    Real *data = nullptr;
    size_t rows = 0, cols = 0, stride = 0;
    Real *row(size_t i) const { return data + i * stride; }
    Tensor columns(size_t begin, size_t count) const { return {data + begin, rows, count, stride}; }
  };
  using Gates = Tensor;

  // Weight matrices stacked row after row, each where the checkpoint has it.
  struct Matrix {
    std::vector<HostTensor> parts;  // [rows of the part, cols]
    size_t rows = 0, cols = 0;
    WeightRow row(size_t row) const;
    Matrix slice(size_t begin, size_t count) const;  // of rows
  };
  using Vector = std::vector<Real>;

  // What a sequence leaves behind for whoever goes on from its last token.
  struct State {
    struct Layer {
      std::vector<Real> kv;         // attention: [tokens, 2 Hkv D], k then v, rotated
      std::vector<Real> conv_tail;  // GDN: [taps - 1, channels], before the convolution
      std::vector<Real> gdn;        // GDN: [Hv, Dk, Dv]
    };
    size_t tokens = 0;
    std::vector<Layer> layers;
  };
  using Batch = backend::Batch<State>;

  // threads: at least 1. kernels: for tests; the best by default.
  Backend(const Dimensions &dimensions, size_t threads,
          const Kernels<Real> &kernels = cpu::kernels<Real>());
  ~Backend();

  Matrix matrix(const std::vector<HostTensor> &stack) const;
  Vector vector(const HostTensor &tensor) const;

  // Scratch memory: what tensor() and gates() give lives until the innermost scope ends. Contents
  // are undefined.
  class Scope;
  Scope begin(const Batch &batch);  // of a pass
  Scope scratch();
  Tensor tensor(size_t rows, size_t cols);
  Gates gates(size_t rows) { return tensor(rows, dimensions_.gdn_value_heads); }
  size_t scratch_bytes() const;
  size_t threads() const { return pool_.threads(); }
  const Dimensions &dimensions() const { return dimensions_; }

  // x[T, H] = rows of the embedding.
  void embed(const Batch &batch, const Matrix &embedding, const Tensor &x);
  // y = x * rsqrt(mean(x^2) + eps) * (1 + w), by row; x, y [rows, H].
  void rms_norm(const Tensor &x, const Vector &w, const Tensor &y);
  // y = x w^T and y += x w^T; x [rows, K], w [N, K], y [rows, N].
  void linear(const Tensor &x, const Matrix &w, const Tensor &y) { linear(x, w, y, false); }
  void linear_add(const Tensor &x, const Matrix &w, const Tensor &y) { linear(x, w, y, true); }
  // The last row of each sequence: [T, cols] to [B, cols].
  void gather_last(const Batch &batch, const Tensor &all, const Tensor &last);

  // projected [T, 2 Hk Dk + 2 Hv Dv + 2 Hv] holds q | k | v | z | b | a. Causal depthwise
  // convolution and SiLU over q | k | v, then l2 norm of q (also times Dk^-0.5) and k by head;
  // beta = sigmoid(b); g = -exp(A_log) softplus(a + dt_bias).
  void gdn_prepare(const Batch &batch, size_t layer, const Tensor &projected, const Vector &conv,
                   const Vector &a_log, const Vector &dt_bias, const Tensor &q, const Tensor &k,
                   const Tensor &v, const Gates &g, const Gates &beta);
  // By value head, row after row: S *= e^g; S += k (beta (v - S^T k))^T; o = S^T q.
  // q, k [T, Hk Dk], v, o [T, Hv Dv], g, beta [T, Hv]; value head h uses key head h / (Hv / Hk).
  void gdn_scan(const Batch &batch, size_t layer, const Tensor &q, const Tensor &k, const Tensor &v,
                const Gates &g, const Gates &beta, const Tensor &o);
  // y = x * rsqrt(mean(x^2) + eps) * w * silu(z), by row and head; x, z, y [rows, Hv Dv], w [Dv].
  void gated_norm(const Tensor &x, const Tensor &z, const Vector &w, const Tensor &y);

  // In place: RMS norm of each q and k head, then rotary embedding of its first rotary_dim
  // dimensions. q_gate [T or B, Hq (D of q, D of gate)], kv [T, Hkv D of k | Hkv D of v].
  void attention_prepare(const Batch &batch, size_t layer, Rows rows, const Tensor &q_gate,
                         const Tensor &kv, const Vector &q_norm, const Vector &k_norm);
  // Causal softmax attention, scale D^-0.5, times sigmoid(gate); o [T or B, Hq D].
  void attention(const Batch &batch, size_t layer, Rows rows, const Tensor &q_gate,
                 const Tensor &kv, const Tensor &o);
  // y = silu(gate) * up; gate_up [rows, I | I], y [rows, I].
  void silu_mul(const Tensor &gate_up, const Tensor &y);
  // logits [B, 26] = x [B, H] times the letters' rows of the embedding; hidden [B, H] = x, or
  // nullptr.
  void readout(const Tensor &x, const Matrix &embedding, const std::array<uint32_t, 26> &letters,
               float *logits, float *hidden);

 private:
  class Arena;
  struct Query {
    size_t sequence, row, position;  // row of kv; position in the whole prompt
  };
  void linear(const Tensor &x, const Matrix &w, const Tensor &y, bool add);
  void extend_rotary(size_t positions);
  std::vector<Query> queries(const Batch &batch, Rows rows) const;
  void rotate(Real *head, size_t position) const;

  Dimensions dimensions_;
  const Kernels<Real> &kernels_;
  ThreadPool pool_;
  std::unique_ptr<Arena> arena_;
  std::vector<Real> cosine_, sine_;  // [positions, rotary_dim / 2]
  size_t positions_ = 0;

 public:
  // Gives scratch memory back when it ends.
  class Scope {
   public:
    explicit Scope(Arena &arena);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

   private:
    Arena &arena_;
    size_t block_, used_;
  };
};

extern template class Backend<float>;
extern template class Backend<double>;

}  // namespace cua::backend::cpu
