// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gemm_plan.h"

#include <array>
#include <bit>
#include <string>
#include <vector>

namespace cua::backend::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what Hopper's kernels may ask for
constexpr int kCandidates = 32;
constexpr int kTimedRuns = 3;

// Owns the layout of a bf16 matrix, column-major in cuBLASLt's eyes.
class Layout {
 public:
  Layout(uint64_t rows, uint64_t cols, int64_t stride) {
    check(cublasLtMatrixLayoutCreate(&layout_, CUDA_R_16BF, rows, cols, stride),
          "describing a matrix");
  }
  ~Layout() { (void)cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout &) = delete;
  Layout &operator=(const Layout &) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// Two events on a stream.
class Timer {
 public:
  Timer() {
    check(cudaEventCreate(&start_), "making an event");
    check(cudaEventCreate(&stop_), "making an event");
  }
  ~Timer() {
    (void)cudaEventDestroy(start_);
    (void)cudaEventDestroy(stop_);
  }
  Timer(const Timer &) = delete;
  Timer &operator=(const Timer &) = delete;
  void start(cudaStream_t stream) const { check(cudaEventRecord(start_, stream), "timing"); }
  float stop(cudaStream_t stream) const {
    float milliseconds = 0;
    check(cudaEventRecord(stop_, stream), "timing");
    check(cudaEventSynchronize(stop_), "timing");
    check(cudaEventElapsedTime(&milliseconds, start_, stop_), "timing");
    return milliseconds;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

}  // namespace

uint32_t row_bucket(uint32_t rows) {
  if (rows <= kLeastRows) return kLeastRows;
  if (rows <= 512) return (rows + 63) / 64 * 64;
  return std::bit_ceil(rows);
}

bool keeps_rows(const GemmCandidate &candidate, size_t workspace) {
  return candidate.supported && candidate.split_k <= 1 && candidate.reduction == 0 &&
         candidate.workspace <= workspace;
}

std::optional<size_t> choose(std::span<const GemmCandidate> ranked, size_t workspace) {
  std::optional<size_t> best;
  for (size_t i = 0; i < ranked.size(); ++i) {
    if (!keeps_rows(ranked[i], workspace)) continue;
    if (!best ||
        (ranked[i].milliseconds > 0 && (ranked[*best].milliseconds <= 0 ||
                                        ranked[i].milliseconds < ranked[*best].milliseconds))) {
      best = i;
    }
  }
  return best;
}

GemmPlans::GemmPlans() : workspace_(kWorkspaceBytes, "the workspace of matrix products") {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "starting cuBLASLt");
  handle_.reset(handle);
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing the matrix product");
  operation_.reset(operation);
  const cublasOperation_t transpose = CUBLAS_OP_T;
  check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                       sizeof transpose),
        "describing the matrix product");
}

const cublasLtMatmulAlgo_t &GemmPlans::plan(const void *w, uint32_t outputs, uint32_t depth,
                                            uint32_t bucket, cudaStream_t stream) {
  const Shape shape{outputs, depth, bucket};
  if (const auto known = plans_.find(shape); known != plans_.end()) return known->second;
  const std::string name = "choosing an algorithm for " + std::to_string(bucket) + " rows, " +
                           std::to_string(depth) + " inputs, " + std::to_string(outputs) +
                           " outputs";
  const Layout w_layout(depth, outputs, depth), x_layout(depth, bucket, depth),
      y_layout(outputs, bucket, outputs);
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), name);
  const size_t workspace = workspace_.bytes();
  const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace),
        name);
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &no_reduction, sizeof no_reduction),
        name);
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results;
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), operation_.get(), w_layout.get(), x_layout.get(), y_layout.get(),
      y_layout.get(), preference, kCandidates, results.data(), &found);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  check(status, name);

  std::vector<GemmCandidate> ranked;
  for (int i = 0; i < found; ++i) {
    GemmCandidate candidate;
    candidate.algorithm = results[static_cast<size_t>(i)].algo;
    candidate.workspace = results[static_cast<size_t>(i)].workspaceSize;
    candidate.supported = results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS;
    size_t written = 0;
    check(cublasLtMatmulAlgoConfigGetAttribute(&candidate.algorithm,
                                               CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &candidate.split_k,
                                               sizeof candidate.split_k, &written),
          name);
    check(cublasLtMatmulAlgoConfigGetAttribute(
              &candidate.algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &candidate.reduction,
              sizeof candidate.reduction, &written),
          name);
    ranked.push_back(candidate);
  }

  // Time what may be chosen. Two rounds, the second counts.
  const DeviceMemory x(size_t{bucket} * depth * sizeof(uint16_t), "timing matrix products");
  const DeviceMemory y(size_t{bucket} * outputs * sizeof(uint16_t), "timing matrix products");
  check(cudaMemsetAsync(x.as<std::byte>(), 0x3c, x.bytes(), stream), name);
  const float one = 1, zero = 0;
  const Timer timer;
  for (GemmCandidate &candidate : ranked) {
    if (!keeps_rows(candidate, workspace)) continue;
    for (int round = 0; round < 2 && candidate.supported; ++round) {
      timer.start(stream);
      for (int i = 0; i < kTimedRuns; ++i) {
        candidate.supported =
            cublasLtMatmul(handle_.get(), operation_.get(), &one, w, w_layout.get(),
                           x.as<std::byte>(), x_layout.get(), &zero, y.as<std::byte>(),
                           y_layout.get(), y.as<std::byte>(), y_layout.get(), &candidate.algorithm,
                           workspace_.as<std::byte>(), workspace_.bytes(),
                           stream) == CUBLAS_STATUS_SUCCESS &&
            candidate.supported;
      }
      candidate.milliseconds = timer.stop(stream);
    }
  }
  const auto best = choose(ranked, workspace);
  if (!best) {
    throw Error(CUA_UNSUPPORTED, name + ": none of the " + std::to_string(found) +
                                     " that cuBLASLt offers sums in one piece; use another version "
                                     "of cuBLASLt");
  }
  return plans_.emplace(shape, ranked[*best].algorithm).first->second;
}

void GemmPlans::run(const void *x, const void *w, void *y, uint32_t rows, uint32_t outputs,
                    uint32_t depth, uint32_t x_stride, uint32_t y_stride, bool add,
                    cudaStream_t stream) {
  const cublasLtMatmulAlgo_t &algorithm = plan(w, outputs, depth, row_bucket(rows), stream);
  const Layout w_layout(depth, outputs, depth), x_layout(depth, rows, x_stride),
      y_layout(outputs, rows, y_stride);
  const float one = 1, beta = add ? 1 : 0;
  check(cublasLtMatmul(handle_.get(), operation_.get(), &one, w, w_layout.get(), x, x_layout.get(),
                       &beta, y, y_layout.get(), y, y_layout.get(), &algorithm,
                       workspace_.as<std::byte>(), workspace_.bytes(), stream),
        "multiplying " + std::to_string(rows) + " rows by a weight of " + std::to_string(outputs) +
            " x " + std::to_string(depth));
}

}  // namespace cua::backend::cuda
