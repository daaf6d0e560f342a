// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tools/split.h"

namespace cua::tools {

// A backend whose operations are timed one by one. Clock: time(backend, name, operation) runs the
// operation, and read() gives the seconds of each since the last read. kBytes: of an activation;
// weights have two.
template <class Base, class Clock, int kBytes>
class TimedBackend : public Base {
 public:
  using Base::Base;
  using typename Base::Batch;
  using typename Base::Gates;
  using typename Base::Matrix;
  using typename Base::Tensor;
  using typename Base::Vector;
  using Rows = backend::Rows;

  void time_operations(bool on) { on_ = on; }
  // What was seen since the last call, divided by `passes`.
  std::vector<SplitOperation> operations(size_t passes) {
    for (const auto &[name, seconds] : clock_.read()) seen_[name].seconds += seconds;
    std::vector<SplitOperation> result;
    const auto n = static_cast<double>(passes);
    for (auto &[name, operation] : seen_) {
      operation.name = name;
      operation.calls /= n;
      operation.seconds /= n;
      operation.flops /= n;
      operation.bytes /= n;
      result.push_back(operation);
    }
    seen_.clear();
    std::sort(result.begin(), result.end(),
              [](const auto &a, const auto &b) { return a.seconds > b.seconds; });
    return result;
  }

  void embed(const Batch &batch, const Matrix &embedding, const Tensor &x) {
    time("embed", 0, 2 * elements(x), [&] { Base::embed(batch, embedding, x); });
  }
  void rms_norm(const Tensor &x, const Vector &w, const Tensor &y) {
    time("rms_norm", 0, 2 * elements(x), [&] { Base::rms_norm(x, w, y); });
  }
  void linear(const Tensor &x, const Matrix &w, const Tensor &y) {
    product("linear", x, w, 1, [&] { Base::linear(x, w, y); });
  }
  void linear_add(const Tensor &x, const Matrix &w, const Tensor &y) {
    product("linear_add", x, w, 2, [&] { Base::linear_add(x, w, y); });
  }
  void gather_last(const Batch &batch, const Tensor &all, const Tensor &last) {
    time("gather_last", 0, 2 * elements(last), [&] { Base::gather_last(batch, all, last); });
  }
  void gdn_prepare(const Batch &batch, size_t layer, const Tensor &projected, const Vector &conv,
                   const Vector &a_log, const Vector &dt_bias, const Tensor &q, const Tensor &k,
                   const Tensor &v, const Gates &g, const Gates &beta) {
    const double mixed = elements(q) + elements(k) + elements(v), gates = gate_count(batch);
    time("gdn_prepare", 0, 2 * mixed + 2 * gates + 2 * gates * sizeof(float) / kBytes, [&] {
      Base::gdn_prepare(batch, layer, projected, conv, a_log, dt_bias, q, k, v, g, beta);
    });
  }
  void gdn_scan(const Batch &batch, size_t layer, const Tensor &q, const Tensor &k, const Tensor &v,
                const Gates &g, const Gates &beta, const Tensor &o) {
    const double gates = gate_count(batch);
    time("gdn_scan", 6 * elements(v) * this->dims().gdn_key_dim,
         elements(q) + elements(k) + 2 * elements(v) + 2 * gates * sizeof(float) / kBytes,
         [&] { Base::gdn_scan(batch, layer, q, k, v, g, beta, o); });
  }
  void gated_norm(const Tensor &x, const Tensor &z, const Vector &w, const Tensor &y) {
    time("gated_norm", 0, 3 * elements(x), [&] { Base::gated_norm(x, z, w, y); });
  }
  void attention_prepare(const Batch &batch, size_t layer, Rows rows, const Tensor &q_gate,
                         const Tensor &kv, const Vector &q_norm, const Vector &k_norm) {
    time("attention_prepare", 0, elements(q_gate) + elements(kv),
         [&] { Base::attention_prepare(batch, layer, rows, q_gate, kv, q_norm, k_norm); });
  }
  void attention(const Batch &batch, size_t layer, Rows rows, const Tensor &q_gate,
                 const Tensor &kv, const Tensor &o) {
    double keys = 0;  // that the queries see
    for (size_t s = 0; s < batch.sequences(); ++s) {
      const double n = static_cast<double>(batch.end(s) - batch.begin(s));
      keys += rows == Rows::last ? n : n * (n + 1) / 2;
    }
    time("attention", 4 * keys * this->dims().heads * this->dims().head_dim,
         elements(q_gate) + elements(kv) + elements(o),
         [&] { Base::attention(batch, layer, rows, q_gate, kv, o); });
  }
  void silu_mul(const Tensor &gate_up, const Tensor &y) {
    time("silu_mul", 0, elements(gate_up) + elements(y), [&] { Base::silu_mul(gate_up, y); });
  }
  void readout(const Tensor &x, const Matrix &embedding, const std::array<uint32_t, 26> &letters,
               float *logits, float *hidden) {
    time("readout", 2 * 26 * elements(x), elements(x) + 26.0 * static_cast<double>(x.cols),
         [&] { Base::readout(x, embedding, letters, logits, hidden); });
  }

 private:
  static double elements(const Tensor &tensor) {
    return static_cast<double>(tensor.rows) * static_cast<double>(tensor.cols);
  }
  double gate_count(const Batch &batch) const {
    return static_cast<double>(batch.rows()) * this->dims().gdn_value_heads;
  }
  const backend::Dimensions &dims() const { return Base::dimensions(); }

  // ends: how often the result is read or written.
  template <class Run>
  void product(const char *kind, const Tensor &x, const Matrix &w, int ends, const Run &run) {
    const double rows = static_cast<double>(x.rows), outputs = static_cast<double>(w.rows),
                 depth = static_cast<double>(w.cols);
    time(std::string(kind) + " " + std::to_string(w.rows) + " x " + std::to_string(w.cols),
         2 * rows * outputs * depth,
         outputs * depth * 2 / kBytes + rows * depth + rows * outputs * ends, run);
  }

  template <class Run>
  void time(const std::string &name, double flops, double values, const Run &run) {
    if (!on_) {
      run();
      return;
    }
    SplitOperation &operation = seen_[name];
    operation.calls += 1;
    operation.flops += flops;
    operation.bytes += values * kBytes;
    clock_.time(*this, name, run);
  }

  bool on_ = false;
  Clock clock_;
  std::map<std::string, SplitOperation> seen_;
};

// Random prompts of one length, packed.
struct SplitBatch {
  SplitBatch(const SplitRequest &request, uint32_t tokens, uint32_t vocabulary) {
    uint64_t state = request.seed * 0x9e3779b97f4a7c15u + tokens;
    for (size_t i = 0; i < size_t{request.batch} * tokens; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      ids.push_back(static_cast<uint32_t>((state >> 33) % vocabulary));
    }
    for (uint32_t s = 1; s <= request.batch; ++s) cu_seqlens.push_back(s * tokens);
  }
  std::vector<uint32_t> ids, cu_seqlens{0};
};

}  // namespace cua::tools
