// SPDX-License-Identifier: Apache-2.0
//
// Which cuBLASLt algorithm multiplies by which weight. Choosing is a pure function of what the
// library offers, so that it is tested without a GPU.
#pragma once
#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>

#include "backend/cuda/device_memory.h"

namespace cua::backend::cuda {

// Fewer rows than this are padded: below it the bits of a row were never measured to be its own.
inline constexpr uint32_t kLeastRows = 64;
// Rows that x and y have room for at least: a plan may find it faster to multiply more than asked.
inline constexpr uint32_t kRoomRows = 256;

// Plans are made for no more rows than this: beyond it the same algorithms serve.
inline constexpr uint32_t kMostPlannedRows = 2048;

// Row counts that share a plan: multiples of 64 to 512, then powers of two.
uint32_t row_bucket(uint32_t rows);

// What cuBLASLt says of one candidate.
struct GemmCandidate {
  cublasLtMatmulAlgo_t algorithm{};
  int32_t split_k = 1;     // parts of the sum over the inputs
  uint32_t reduction = 0;  // how the parts are added; 0: not at all
  size_t workspace = 0;    // bytes
  bool supported = true;
  uint32_t rows = 0;       // that it multiplies
  float milliseconds = 0;  // measured; 0: not
};

// Whether a candidate sums each output in one piece, whatever the row count: neither split-K nor a
// reduction. Such algorithms give a row the same bits, whichever is chosen.
bool keeps_rows(const GemmCandidate &candidate, size_t workspace);

// The fastest candidate that keeps rows; without times (0), the best-ranked. nullopt: none does.
std::optional<size_t> choose(std::span<const GemmCandidate> ranked, size_t workspace);

// y [rows, outputs] = x [rows, depth] w [outputs, depth]^T, bf16 in and out, sums in fp32.
class GemmPlans {
 public:
  GemmPlans();

  // Adds to y where `add`. x and y have room for kRoomRows at least; rows beyond `rows` hold
  // anything before and after. Plans are made on first use of a bucket.
  void run(const void *x, const void *w, void *y, uint32_t rows, uint32_t outputs, uint32_t depth,
           uint32_t x_stride, uint32_t y_stride, bool add, cudaStream_t stream);
  size_t device_bytes() const { return workspace_.bytes(); }

  // Plans are compared bit for bit with that of the weight shape's least bucket. Empty where every
  // one in use agrees; else the first that does not, in words.
  const std::string &dependence() const { return dependence_; }
  // How many faster ones were passed over because they did not agree.
  size_t refused() const { return refused_; }

 private:
  using Shape = std::tuple<uint32_t, uint32_t, uint32_t>;  // outputs, depth, row bucket
  // Chosen by timing on first use, with the weights given, while nothing else runs on the stream;
  // of the fastest whose bits are right.
  const GemmCandidate &plan(const void *w, uint32_t outputs, uint32_t depth, uint32_t bucket,
                            cudaStream_t stream);

  class Trial;
  // false where cuBLASLt refuses.
  bool multiply(const GemmCandidate &candidate, const void *x, const void *w, void *y,
                uint32_t rows, uint32_t outputs, uint32_t depth, uint32_t x_stride,
                uint32_t y_stride, bool add, cudaStream_t stream) const;

  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { (void)cublasLtDestroy(handle); }
    void operator()(cublasLtMatmulDesc_t operation) const {
      (void)cublasLtMatmulDescDestroy(operation);
    }
  };
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy> handle_;
  std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy> operation_;
  std::map<Shape, GemmCandidate> plans_;
  DeviceMemory workspace_;
  std::string dependence_;
  size_t refused_ = 0;
};

}  // namespace cua::backend::cuda
