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
#include <vector>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/gemm_plan_file.h"
#include "backend/cuda/row_bucket.h"

namespace cua::backend::cuda {

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

  // Takes plans of a file in place of timing, each once its bits have been compared; others are
  // timed as ever. Before the first run. Throws INVALID_ARGUMENT with a reason that begins with
  // `file`: made for another card or cuBLASLt, or an algorithm that cuBLASLt does not accept.
  void use(const GemmPlanFile &plans, const std::string &file);
  // Every plan in use, as a file holds it.
  GemmPlanFile file() const;

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
  size_t size() const { return plans_.size(); }
  // How many of them are of a file, and which of the file's were passed over, in words, because
  // they did not agree.
  size_t from_file() const { return from_file_; }
  const std::vector<std::string> &passed_over() const { return passed_over_; }

 private:
  using Shape = std::tuple<uint32_t, uint32_t, uint32_t>;  // outputs, depth, row bucket
  // Chosen by timing on first use, with the weights given, while nothing else runs on the stream;
  // of the fastest whose bits are right.
  const GemmCandidate &plan(const void *w, uint32_t outputs, uint32_t depth, uint32_t bucket,
                            cudaStream_t stream);

  class Trial;
  // What cuBLASLt offers for the bucket's rows and, as far as there is room, for more; best first
  // for each number of rows. Throws where it offers nothing.
  std::vector<GemmCandidate> rank(uint32_t outputs, uint32_t depth, uint32_t bucket) const;
  // nullopt: cuBLASLt does not accept it.
  std::optional<GemmCandidate> configured(const GemmPlan &plan) const;
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
  std::map<Shape, GemmCandidate> given_;  // by a file
  DeviceMemory workspace_;
  std::string dependence_;
  size_t refused_ = 0, from_file_ = 0;
  std::vector<std::string> passed_over_;
};

}  // namespace cua::backend::cuda
