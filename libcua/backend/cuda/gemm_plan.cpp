// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gemm_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

namespace cua::backend::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what Hopper's kernels may ask for
constexpr int kCandidates = 16;
constexpr int kTimedRuns = 3;
constexpr uint32_t kMostTimedRows = 2048;  // beyond it timing costs more than it saves

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

GemmCandidate candidate_of(const cublasLtMatmulHeuristicResult_t &result) {
  GemmCandidate candidate;
  candidate.algorithm = result.algo;
  candidate.workspace = result.workspaceSize;
  candidate.supported = result.state == CUBLAS_STATUS_SUCCESS;
  size_t written = 0;
  const auto read = [&](cublasLtMatmulAlgoConfigAttributes_t what, auto &to) {
    if (cublasLtMatmulAlgoConfigGetAttribute(&candidate.algorithm, what, &to, sizeof to,
                                             &written) != CUBLAS_STATUS_SUCCESS) {
      candidate.supported = false;
    }
  };
  read(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, candidate.split_k);
  read(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, candidate.reduction);
  return candidate;
}

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

void GemmPlans::time(std::span<GemmCandidate> candidates, const void *w, uint32_t outputs,
                     uint32_t depth, cudaStream_t stream) const {
  uint32_t most = 0;
  for (const GemmCandidate &candidate : candidates) most = std::max(most, candidate.rows);
  const DeviceMemory x(size_t{most} * depth * sizeof(uint16_t), "timing matrix products");
  const DeviceMemory y(size_t{most} * outputs * sizeof(uint16_t), "timing matrix products");
  check(cudaMemsetAsync(x.as<std::byte>(), 0x3c, x.bytes(), stream), "timing matrix products");
  const Layout w_layout(depth, outputs, depth);
  const float one = 1, zero = 0;
  const Timer timer;
  const auto run = [&](const GemmCandidate &candidate) {
    const Layout x_layout(depth, candidate.rows, depth), y_layout(outputs, candidate.rows, outputs);
    return cublasLtMatmul(handle_.get(), operation_.get(), &one, w, w_layout.get(),
                          x.as<std::byte>(), x_layout.get(), &zero, y.as<std::byte>(),
                          y_layout.get(), y.as<std::byte>(), y_layout.get(), &candidate.algorithm,
                          workspace_.as<std::byte>(), workspace_.bytes(),
                          stream) == CUBLAS_STATUS_SUCCESS;
  };
  for (GemmCandidate &candidate : candidates) {
    if (!keeps_rows(candidate, workspace_.bytes())) continue;
    candidate.supported = run(candidate);  // the first run may load the kernel
    if (!candidate.supported) continue;
    timer.start(stream);
    for (int i = 0; i < kTimedRuns; ++i) (void)run(candidate);
    candidate.milliseconds = timer.stop(stream);
  }
}

const GemmCandidate &GemmPlans::plan(const void *w, uint32_t outputs, uint32_t depth,
                                     uint32_t bucket, cudaStream_t stream) {
  const Shape shape{outputs, depth, bucket};
  if (const auto known = plans_.find(shape); known != plans_.end()) return known->second;
  const std::string name = "choosing an algorithm for " + std::to_string(bucket) + " rows, " +
                           std::to_string(depth) + " inputs, " + std::to_string(outputs) +
                           " outputs";
  const Layout w_layout(depth, outputs, depth);
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
  // More rows are tried as well, as far as there is room: for 64 alone the ranking offers little
  // without split-K, and 256 can take less time.
  std::vector<GemmCandidate> ranked;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (uint32_t rows = bucket; rows <= std::max(bucket, kRoomRows); rows += kLeastRows) {
    const Layout more_x(depth, rows, depth), more_y(outputs, rows, outputs);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results;
    int found = 0;
    status = cublasLtMatmulAlgoGetHeuristic(handle_.get(), operation_.get(), w_layout.get(),
                                            more_x.get(), more_y.get(), more_y.get(), preference,
                                            kCandidates, results.data(), &found);
    if (status != CUBLAS_STATUS_SUCCESS) break;
    for (const auto &result : std::span(results).first(static_cast<size_t>(found))) {
      ranked.push_back(candidate_of(result));
      ranked.back().rows = rows;
    }
  }
  (void)cublasLtMatmulPreferenceDestroy(preference);
  if (ranked.empty()) check(status, name);

  if (bucket <= kMostTimedRows) time(ranked, w, outputs, depth, stream);
  const auto best = choose(ranked, workspace);
  if (!best) {
    throw Error(CUA_UNSUPPORTED, name + ": none of the " + std::to_string(ranked.size()) +
                                     " that cuBLASLt offers sums in one piece; use another version "
                                     "of cuBLASLt");
  }
  return plans_.emplace(shape, ranked[*best]).first->second;
}

void GemmPlans::run(const void *x, const void *w, void *y, uint32_t rows, uint32_t outputs,
                    uint32_t depth, uint32_t x_stride, uint32_t y_stride, bool add,
                    cudaStream_t stream) {
  const uint32_t bucket = row_bucket(rows);
  const GemmCandidate &chosen = plan(w, outputs, depth, bucket, stream);
  rows = chosen.rows > bucket ? chosen.rows : std::max(rows, kLeastRows);
  const Layout w_layout(depth, outputs, depth), x_layout(depth, rows, x_stride),
      y_layout(outputs, rows, y_stride);
  const float one = 1, beta = add ? 1 : 0;
  check(cublasLtMatmul(handle_.get(), operation_.get(), &one, w, w_layout.get(), x, x_layout.get(),
                       &beta, y, y_layout.get(), y, y_layout.get(), &chosen.algorithm,
                       workspace_.as<std::byte>(), workspace_.bytes(), stream),
        "multiplying " + std::to_string(rows) + " rows by a weight of " + std::to_string(outputs) +
            " x " + std::to_string(depth));
}

}  // namespace cua::backend::cuda
