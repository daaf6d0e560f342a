// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gemm_plan.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "backend/cuda/kernels.h"

namespace cua::backend::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what Hopper's kernels may ask for
constexpr int kCandidates = 16;
constexpr size_t kFinalists = 4;  // timed again, as often as this:
constexpr int kFinalRuns = 5;

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

// Of the current device's L2.
size_t cache_bytes() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "finding the current device");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "reading the size of L2");
  return static_cast<size_t>(bytes);
}

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

std::string words(uint32_t outputs, uint32_t depth, uint32_t bucket) {
  return std::to_string(bucket) + " rows, " + std::to_string(depth) + " inputs, " +
         std::to_string(outputs) + " outputs";
}

// What a file says of an algorithm, attribute by attribute; false where one is refused.
// access(attribute, value): reads or writes it, in the type that cuBLASLt has for it.
template <class Algorithm, class Access>
bool each_attribute(Algorithm &algorithm, const Access &access) {
  return access(CUBLASLT_ALGO_CONFIG_TILE_ID, algorithm.tile, uint32_t{}) &&
         access(CUBLASLT_ALGO_CONFIG_STAGES_ID, algorithm.stages, uint32_t{}) &&
         access(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, algorithm.cluster, uint16_t{}) &&
         access(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, algorithm.swizzle, uint32_t{}) &&
         access(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, algorithm.custom, uint32_t{}) &&
         access(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, algorithm.inner, uint16_t{});
}

GemmAlgorithm configuration_of(const cublasLtMatmulAlgo_t &algorithm) {
  GemmAlgorithm result;
  size_t written = 0;
  const auto read = [&](cublasLtMatmulAlgoConfigAttributes_t what, uint32_t &to, auto value) {
    check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, what, &value, sizeof value, &written),
          "reading an algorithm's configuration");
    to = static_cast<uint32_t>(value);
    return true;
  };
  read(CUBLASLT_ALGO_CONFIG_ID, result.id, int32_t{});
  each_attribute(result, read);
  return result;
}

GemmPlanTarget this_target() {
  int device = 0;
  cudaDeviceProp properties;
  check(cudaGetDevice(&device), "finding the current device");
  check(cudaGetDeviceProperties(&properties, device), "reading the device's properties");
  return {properties.name, static_cast<uint32_t>(10 * properties.major + properties.minor),
          cublasLtGetVersion()};
}

}  // namespace

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

bool GemmPlans::multiply(const GemmCandidate &candidate, const void *x, const void *w, void *y,
                         uint32_t rows, uint32_t outputs, uint32_t depth, uint32_t x_stride,
                         uint32_t y_stride, bool add, cudaStream_t stream) const {
  const Layout w_layout(depth, outputs, depth), x_layout(depth, rows, x_stride),
      y_layout(outputs, rows, y_stride);
  const float one = 1, beta = add ? 1 : 0;
  return cublasLtMatmul(handle_.get(), operation_.get(), &one, w, w_layout.get(), x, x_layout.get(),
                        &beta, y, y_layout.get(), y, y_layout.get(), &candidate.algorithm,
                        workspace_.as<std::byte>(), workspace_.bytes(),
                        stream) == CUBLAS_STATUS_SUCCESS;
}

// Multiplies random rows by one weight, to time candidates and to compare their bits.
class GemmPlans::Trial {
 public:
  Trial(const GemmPlans &plans, const void *w, uint32_t outputs, uint32_t depth, uint32_t rows,
        cudaStream_t stream)
      : plans_(plans),
        w_(w),
        outputs_(outputs),
        depth_(depth),
        rows_(rows),
        stream_(stream),
        // Up to kRoomRows are multiplied at a time, which reads and writes beyond the last row.
        x_(size_t{rows + kRoomRows} * depth * sizeof(bf16), "trying matrix products"),
        y_(size_t{rows + kRoomRows} * outputs * sizeof(bf16), "trying matrix products"),
        expected_(size_t{rows + kRoomRows} * outputs * sizeof(bf16), "trying matrix products"),
        differences_(sizeof(uint32_t), "trying matrix products"),
        flush_(2 * cache_bytes(), "trying matrix products") {
    fill_random(x_.as<bf16>(), x_.bytes() / sizeof(bf16), 1, stream_);
  }

  // Sets the times of those that keep rows; one that fails is no longer supported. Each run finds
  // the caches cold, as in a pass, where the other weights have gone through them since.
  void time(std::vector<GemmCandidate> &candidates, size_t workspace) const {
    std::vector<GemmCandidate *> timed;
    for (GemmCandidate &candidate : candidates) {
      if (!keeps_rows(candidate, workspace)) continue;
      candidate.supported = run(candidate, candidate.rows, false, y_);  // may load the kernel
      if (!candidate.supported) continue;
      candidate.milliseconds = time_once(candidate);
      timed.push_back(&candidate);
    }
    std::sort(timed.begin(), timed.end(),
              [](const auto *a, const auto *b) { return a->milliseconds < b->milliseconds; });
    timed.resize(std::min(timed.size(), kFinalists));
    for (GemmCandidate *candidate : timed) {
      std::array<float, kFinalRuns> times;
      for (float &time : times) time = time_once(*candidate);
      std::sort(times.begin(), times.end());
      candidate->milliseconds = times[kFinalRuns / 2];
    }
    // One that did not get so far may still show a lucky run.
    for (GemmCandidate &candidate : candidates) {
      if (!timed.empty() && std::find(timed.begin(), timed.end(), &candidate) == timed.end()) {
        candidate.milliseconds = std::max(candidate.milliseconds, timed.back()->milliseconds);
      }
    }
  }

  // Whether both give every row the same bits, the reference a few rows at a time.
  bool same_bits(const GemmCandidate &candidate, const GemmCandidate &reference) const {
    for (const bool add : {false, true}) {
      for (const DeviceMemory *y : {&y_, &expected_}) {
        fill_random(y->as<bf16>(), y->bytes() / sizeof(bf16), 2, stream_);
      }
      if (!run(candidate, std::max(rows_, candidate.rows), add, y_)) return false;
      for (uint32_t row = 0; row < rows_; row += reference.rows) {
        if (!plans_.multiply(reference, x_.as<bf16>(size_t{row} * depth_ * sizeof(bf16)), w_,
                             expected_.as<bf16>(size_t{row} * outputs_ * sizeof(bf16)),
                             reference.rows, outputs_, depth_, depth_, outputs_, add, stream_)) {
          return false;
        }
      }
      uint32_t differences = 0;
      count_differences(y_.as<bf16>(), expected_.as<bf16>(), size_t{rows_} * outputs_,
                        differences_.as<uint32_t>(), stream_);
      check(cudaMemcpyAsync(&differences, differences_.as<uint32_t>(), sizeof differences,
                            cudaMemcpyDeviceToHost, stream_),
            "comparing matrix products");
      check(cudaStreamSynchronize(stream_), "comparing matrix products");
      if (differences != 0) return false;
    }
    return true;
  }

 private:
  float time_once(const GemmCandidate &candidate) const {
    check(cudaMemsetAsync(flush_.as<std::byte>(), 0, flush_.bytes(), stream_),
          "timing matrix products");
    timer_.start(stream_);
    (void)run(candidate, candidate.rows, false, y_);
    return timer_.stop(stream_);
  }
  bool run(const GemmCandidate &candidate, uint32_t rows, bool add, const DeviceMemory &y) const {
    return plans_.multiply(candidate, x_.as<bf16>(), w_, y.as<bf16>(), rows, outputs_, depth_,
                           depth_, outputs_, add, stream_);
  }

  const GemmPlans &plans_;
  const void *w_;
  uint32_t outputs_, depth_, rows_;
  cudaStream_t stream_;
  DeviceMemory x_, y_, expected_, differences_, flush_;
  Timer timer_;
};

std::vector<GemmCandidate> GemmPlans::rank(uint32_t outputs, uint32_t depth,
                                           uint32_t bucket) const {
  const std::string name = "choosing an algorithm for " + words(outputs, depth, bucket);
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
  return ranked;
}

std::optional<GemmCandidate> GemmPlans::configured(const GemmPlan &plan) const {
  cublasLtMatmulHeuristicResult_t result{};
  const auto write = [&](cublasLtMatmulAlgoConfigAttributes_t what, uint32_t from, auto value) {
    value = static_cast<decltype(value)>(from);
    return cublasLtMatmulAlgoConfigSetAttribute(&result.algo, what, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  };
  if (cublasLtMatmulAlgoInit(handle_.get(), CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF,
                             CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF,
                             static_cast<int>(plan.algorithm.id),
                             &result.algo) != CUBLAS_STATUS_SUCCESS ||
      !each_attribute(plan.algorithm, write) ||
      configuration_of(result.algo) != plan.algorithm) {  // a value that has no room
    return std::nullopt;
  }
  const Layout w(plan.k, plan.n, plan.k), x(plan.k, plan.rows, plan.k),
      y(plan.n, plan.rows, plan.n);
  const cublasLtMatmulAlgo_t algorithm = result.algo;  // the check leaves its own alone
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle_.get(), operation_.get(), w.get(), x.get(), y.get(), y.get(), &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  result.algo = algorithm;
  GemmCandidate candidate = candidate_of(result);
  candidate.rows = plan.rows;
  if (!keeps_rows(candidate, workspace_.bytes())) return std::nullopt;
  return candidate;
}

void GemmPlans::use(const GemmPlanFile &plans, const std::string &file) {
  require_target(plans, this_target(), file);
  for (const GemmPlan &plan : plans.plans) {
    const auto candidate = configured(plan);
    if (!candidate) {
      throw Error(CUA_INVALID_ARGUMENT,
                  file + ": cuBLASLt does not accept the algorithm for " +
                      words(plan.n, plan.k, plan.bucket) +
                      "; make the file anew with cua-bench tune, or leave it out");
    }
    given_[{plan.n, plan.k, plan.bucket}] = *candidate;
  }
}

GemmPlanFile GemmPlans::file() const {
  GemmPlanFile result{this_target(), {}};
  for (const auto &[shape, candidate] : plans_) {
    const auto [outputs, depth, bucket] = shape;
    result.plans.push_back(
        {outputs, depth, bucket, candidate.rows, configuration_of(candidate.algorithm)});
  }
  return result;
}

const GemmCandidate &GemmPlans::plan(const void *w, uint32_t outputs, uint32_t depth,
                                     uint32_t bucket, cudaStream_t stream) {
  const Shape shape{outputs, depth, bucket};
  if (const auto known = plans_.find(shape); known != plans_.end()) return known->second;
  // The least bucket's plan sets the bits that those of the others must give.
  const GemmCandidate *const reference =
      bucket == kLeastRows ? nullptr : &plan(w, outputs, depth, kLeastRows, stream);
  std::vector<GemmCandidate> ranked = rank(outputs, depth, bucket);
  const size_t workspace = workspace_.bytes();
  const Trial trial(*this, w, outputs, depth, bucket, stream);
  if (const auto given = given_.find(shape); given != given_.end()) {
    // A file's plan of the least bucket must itself give the bits of cuBLASLt's first choice.
    const auto first = choose(ranked, workspace);
    const GemmCandidate *const expected =
        reference != nullptr ? reference : (first ? &ranked[*first] : nullptr);
    if (expected != nullptr && trial.same_bits(given->second, *expected)) {
      ++from_file_;
      return plans_.emplace(shape, given->second).first->second;
    }
    passed_over_.push_back(words(outputs, depth, bucket));
  }
  trial.time(ranked, workspace);
  std::vector<GemmCandidate> left = ranked;
  auto best = choose(left, workspace);
  const auto first_choice = best;
  while (best && reference != nullptr && !trial.same_bits(left[*best], *reference)) {
    ++refused_;
    left[*best].supported = false;
    best = choose(left, workspace);
  }
  if (!best && first_choice) {  // right, but a prompt's bits depend on the number of rows
    if (dependence_.empty()) {
      dependence_ = std::to_string(bucket) + " rows of " + std::to_string(depth) + " inputs and " +
                    std::to_string(outputs) + " outputs: none of " + std::to_string(ranked.size()) +
                    " algorithms of cuBLASLt gives the bits of " + std::to_string(kLeastRows) +
                    " rows";
    }
    best = first_choice;
  }
  if (!best) {
    throw Error(CUA_UNSUPPORTED, "choosing an algorithm for " + words(outputs, depth, bucket) +
                                     ": none of the " + std::to_string(ranked.size()) +
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
  if (!multiply(chosen, x, w, y, rows, outputs, depth, x_stride, y_stride, add, stream)) {
    throw Error(CUA_DEVICE_FAILED, "cuBLASLt failed multiplying " + std::to_string(rows) +
                                       " rows by a weight of " + std::to_string(outputs) + " x " +
                                       std::to_string(depth));
  }
}

}  // namespace cua::backend::cuda
