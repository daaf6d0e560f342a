// SPDX-License-Identifier: Apache-2.0
//
// The operations of the forward pass on a GPU: the same as backend/cpu, operation by operation,
// with bf16 activations and fp32 sums, gates and GDN state. Everything runs on one stream; nothing
// here waits for it but upload() and State.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/batch.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/gemm_plan.h"
#include "backend/cuda/kernels.h"
#include "backend/dimensions.h"
#include "backend/host_tensor.h"

namespace cua::backend::cuda {

// Throws UNSUPPORTED, naming the dimension, where the kernels cannot take the model.
void require_supported(const Dimensions &dimensions);

class Backend {
 public:
  // A view of rows in scratch memory on the device.
  struct Tensor {
    bf16 *data = nullptr;
    size_t rows = 0, cols = 0, stride = 0;
    Tensor columns(size_t begin, size_t count) const { return {data + begin, rows, count, stride}; }
  };
  struct Gates {
    float *data = nullptr;  // [rows, Hv]
  };
  struct Matrix {
    const bf16 *data = nullptr;  // [rows, cols]
    size_t rows = 0, cols = 0;
    Matrix slice(size_t begin, size_t count) const { return {data + begin * cols, count, cols}; }
  };
  struct Vector {
    const float *data = nullptr;
  };

  // What a sequence of a multiple of 64 tokens leaves behind.
  class State {
   public:
    State() = default;
    State(const Dimensions &dimensions, size_t room);  // in tokens
    size_t tokens = 0, room = 0;
    const LayerState *layers() const { return table_.as<const LayerState>(); }  // device
    const LayerState &layer(size_t i) const { return host_.at(i); }
    size_t device_bytes() const { return memory_.bytes() + table_.bytes(); }

   private:
    DeviceMemory memory_, table_;
    std::vector<LayerState> host_;  // the table's contents
  };
  using Batch = backend::Batch<State>;

  // weight_bytes: of every matrix and vector of the model, see weight_bytes() below.
  // max_positions: longest prompt, in tokens.
  Backend(const Dimensions &dimensions, size_t weight_bytes, size_t max_positions);
  ~Backend();

  // Room that a tensor takes in the arena of weights, with the rows that matrix() may add.
  static size_t matrix_bytes(const HostTensor &tensor);
  static size_t vector_bytes(const HostTensor &tensor);

  Matrix matrix(const std::vector<HostTensor> &stack);  // rows: rounded up to a multiple of 8
  Vector vector(const HostTensor &tensor);
  // Copies what matrix() and vector() promised, through pinned buffers, on several threads, and
  // waits. progress(bytes so far, of all); may be empty.
  void upload(const std::function<void(size_t, size_t)> &progress);

  // ---- a pass. First measure, then reserve what it needs, then the pass itself.
  class Scope;
  // While measuring, operations do nothing and scratch memory is only counted.
  void start_measuring();
  size_t stop_measuring();  // bytes needed
  // Bytes of scratch memory there are; grows to at least `bytes`. The caller has dropped whatever
  // holds addresses in it (captures) before.
  size_t scratch_bytes() const { return scratch_.bytes(); }
  void reserve_scratch(size_t bytes);
  // The same for the tables of a batch.
  bool fits(const Batch &batch) const;
  void reserve_batch(size_t rows, size_t sequences);
  // Writes a batch's tables where the next pass copies them from. The stream must be idle.
  void stage(const Batch &batch);

  Scope begin(const Batch &batch);
  Scope scratch();
  Tensor tensor(size_t rows, size_t cols);
  Gates gates(size_t rows);
  void embed(const Batch &batch, const Matrix &embedding, const Tensor &x);
  void rms_norm(const Tensor &x, const Vector &w, const Tensor &y);
  void linear(const Tensor &x, const Matrix &w, const Tensor &y) { linear(x, w, y, false); }
  void linear_add(const Tensor &x, const Matrix &w, const Tensor &y) { linear(x, w, y, true); }
  void gather_last(const Batch &batch, const Tensor &all, const Tensor &last);
  void gdn_prepare(const Batch &batch, size_t layer, const Tensor &projected, const Vector &conv,
                   const Vector &a_log, const Vector &dt_bias, const Tensor &q, const Tensor &k,
                   const Tensor &v, const Gates &g, const Gates &beta);
  void gdn_scan(const Batch &batch, size_t layer, const Tensor &q, const Tensor &k, const Tensor &v,
                const Gates &g, const Gates &beta, const Tensor &o);
  void gated_norm(const Tensor &x, const Tensor &z, const Vector &w, const Tensor &y);
  void attention_prepare(const Batch &batch, size_t layer, Rows rows, const Tensor &q_gate,
                         const Tensor &kv, const Vector &q_norm, const Vector &k_norm);
  void attention(const Batch &batch, size_t layer, Rows rows, const Tensor &q_gate,
                 const Tensor &kv, const Tensor &o);
  void silu_mul(const Tensor &gate_up, const Tensor &y);
  // Leaves logits [B, 26] in pinned memory, to be read from logits() once the stream is idle; where
  // `hidden` is not nullptr, waits and writes x [B, H] there. `logits` is not used.
  void readout(const Tensor &x, const Matrix &embedding, const std::array<uint32_t, 26> &letters,
               float *logits, float *hidden);

  const float *logits() const { return logits_host_.as<const float>(); }
  cudaStream_t stream() const { return stream_; }
  const GemmPlans &plans() const { return *plans_; }
  GemmPlans &plans() { return *plans_; }
  void wait();  // for the stream; throws DEVICE_FAILED
  size_t device_bytes() const;
  const Dimensions &dimensions() const { return dimensions_; }

  class Scope {
   public:
    explicit Scope(size_t &top) : top_(top), before_(top) {}
    ~Scope() { top_ = before_; }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

   private:
    size_t &top_;
    size_t before_;
  };

 private:
  struct Piece;   // of a weight, to be copied
  struct Tables;  // offsets of a batch's tables

  void linear(const Tensor &x, const Matrix &w, const Tensor &y, bool add);
  void *take(size_t bytes);
  void launched(const char *what);
  DeviceBatch device_batch(const Batch &batch) const;

  Dimensions dimensions_;
  cudaStream_t stream_ = nullptr;
  DeviceMemory weights_, scratch_, batch_device_, rotary_, logits_device_, letters_;
  PinnedMemory batch_host_, logits_host_;
  std::unique_ptr<GemmPlans> plans_;
  std::vector<Piece> pieces_;
  int shared_bytes_ = 0;  // that a block may have
  size_t weights_used_ = 0;
  size_t top_ = 0, most_ = 0;  // of scratch memory, bytes
  bool measuring_ = false;
  bool letters_known_ = false;
  size_t row_capacity_ = 0, sequence_capacity_ = 0;
};

}  // namespace cua::backend::cuda
