// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cuda/backend.h"
#include "backend/cuda/graph_buckets.h"
#include "backend/cuda/graph_cache.h"
#include "build_info_cuda.h"
#include "engine/executor.h"
#include "error.h"
#include "model/dimensions.h"
#include "model/forward.h"

namespace cua::engine {

const char *backend_name() noexcept { return "cuda"; }

const char *build_info() noexcept {
  return "{\"version\":\"" CUA_VERSION
         "\",\"backend\":\"cuda\",\"architectures\":[" CUA_ARCHITECTURES
         "],\"cuda\":\"" CUA_CUDA_VERSION "\",\"cublaslt\":\"" CUA_CUBLASLT_VERSION "\"}";
}

namespace {

using backend::cuda::Backend;
using backend::cuda::check;
using backend::cuda::CurrentDevice;

constexpr size_t kGraphCapacity = 8;
// Another thread's wait for the whole device breaks a capture; the next may be luckier.
constexpr int kCaptureAttempts = 8;
constexpr uint32_t kBatchTokens = 8192;   // beyond it a pass only needs more scratch
constexpr size_t kBatchSequences = 1024;  // that graph mode bucket makes room for
// In rows: no states of one call's prompts until these were tried on a GPU. (A short pass takes
// 3.4 ms on an H200, as long as 390 rows of a long one.)
constexpr size_t kPassCost = std::numeric_limits<size_t>::max();

// Throws NO_DEVICE with the remedy where `ordinal` is not a GPU that this library can use.
cudaDeviceProp usable_device(int ordinal) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (status == cudaErrorInsufficientDriver) {
    throw Error(CUA_NO_DEVICE,
                "there is no NVIDIA driver, or it is older than CUDA " CUA_CUDA_VERSION
                " needs: install or update it, or use the CPU library "
                "(cua-server --device cpu)");
  }
  if (status != cudaSuccess || count == 0) {
    throw Error(CUA_NO_DEVICE,
                std::string("no NVIDIA GPU was found (") + cudaGetErrorString(status) +
                    "): check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the CPU library");
  }
  if (ordinal < 0 || ordinal >= count) {
    throw Error(CUA_NO_DEVICE,
                "device " + std::to_string(ordinal) + " does not exist: there " +
                    (count == 1 ? "is 1 device, number 0"
                                : "are " + std::to_string(count) + " devices, numbered from 0"));
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, ordinal), "reading the device's properties",
        CUA_NO_DEVICE);
  if (properties.major < 8) {
    throw Error(CUA_NO_DEVICE, std::string(properties.name) + " has compute capability " +
                                   std::to_string(properties.major) + "." +
                                   std::to_string(properties.minor) +
                                   "; 8.0 or newer is needed (Ampere, Ada, Hopper, ...)");
  }
  return properties;
}

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(const checkpoint::Checkpoint &checkpoint, const std::array<uint32_t, 26> &letters,
               uint32_t max_prompt_tokens, const ExecutorOptions &options)
      : properties_(usable_device(options.device)),
        ordinal_(options.device),
        letters_(letters),
        max_prompt_tokens_(max_prompt_tokens),
        log_(options.log),
        graphs_(options.graph_capacity != 0 ? options.graph_capacity : kGraphCapacity) {
    std::optional<backend::cuda::GemmPlanFile> plans;
    if (!options.plans.empty()) plans = backend::cuda::read_gemm_plans(options.plans);
    const CurrentDevice current(ordinal_);
    const model::Config &config = checkpoint.config();
    const model::TensorSource source = [&](const std::string &name) -> const auto & {
      return checkpoint.tensor(name);
    };
    backend_ = std::make_unique<Backend>(
        model::dimensions(config), model::weight_bytes<Backend>(config, source), max_prompt_tokens);
    if (plans) backend_->plans().use(*plans, options.plans);
    forward_ = std::make_unique<Forward>(*backend_, config, source);
    upload_weights();
    make_plans();
    set_graph_mode(options.graph_mode);
  }

  ~CudaExecutor() override {
    try {
      const CurrentDevice current(ordinal_);
      drop_graphs();
      states_.clear();
      forward_.reset();
      backend_.reset();
    } catch (const Error &) {  // the device is lost, and its memory with it
    }
  }

  void keep_state(uint32_t number, std::span<const uint32_t> ids, uint32_t from) override {
    const CurrentDevice current(ordinal_);
    const Backend::State *const before[] = {state_of(from)};
    const size_t tokens = ids.size() + (before[0] != nullptr ? before[0]->tokens : 0);
    if (states_.size() <= number) states_.resize(number + 1);
    if (states_[number].room < tokens) {
      states_[number] = {};  // first give back, then ask
      states_[number] = Backend::State(backend_->dimensions(), tokens);
      count_memory();
    }
    Backend::State &state = states_[number];
    state.tokens = tokens;
    const uint32_t seqlens[] = {0, static_cast<uint32_t>(ids.size())};
    const Backend::Batch batch{ids, seqlens, before, &state};
    prepare(batch);
    run(batch);
  }

  size_t pass_cost() const override { return kPassCost; }

  uint32_t score(const Pass &pass, float *logits) override {
    const CurrentDevice current(ordinal_);
    prefixes_.clear();
    for (const uint32_t number : pass.states) prefixes_.push_back(state_of(number));
    const Backend::Batch batch{pass.ids, pass.cu_seqlens, prefixes_};
    reserve(batch.rows(), batch.sequences());
    const cudaGraphExec_t known = find_graph(batch.rows(), batch.sequences());
    if (known == nullptr) {
      backend_->stage(batch);
      run(batch);
    } else {
      if (mode_ == CUA_GRAPH_BUCKET) {
        stage_padded(batch);
      } else {
        backend_->stage(batch);
      }
      check(cudaGraphLaunch(known, backend_->stream()), "replaying a graph");
      backend_->wait();
      replays_.fetch_add(1, std::memory_order_relaxed);
    }
    std::copy_n(backend_->logits(), batch.sequences() * letters_.size(), logits);
    if (known != nullptr) return CUA_SCORE_REPLAYED;
    if (mode_ != CUA_GRAPH_EXACT || graphs_failed_ || batch.sequences() != 1) return 0;
    const cudaGraphExec_t captured = capture(batch);
    if (captured == nullptr) return 0;
    evictions_.fetch_add(graphs_.insert(batch.rows(), captured), std::memory_order_relaxed);
    return CUA_SCORE_CAPTURED;
  }

  void set_graph_mode(uint32_t mode) override {
    const CurrentDevice current(ordinal_);
    if (mode == mode_) return;
    drop_graphs();
    mode_ = mode;
    if (mode != CUA_GRAPH_BUCKET) return;
    try {
      // Of the longest pass, so that no later one makes the addresses in the graphs move.
      reserve(std::max(max_prompt_tokens_, kBatchTokens), kBatchSequences);
      capture_buckets();
    } catch (...) {
      drop_graphs();
      mode_ = CUA_GRAPH_OFF;
      throw;
    }
  }

  ExecutorStats stats() const override {
    ExecutorStats stats;
    stats.captures = captures_.load(std::memory_order_relaxed);
    stats.replays = replays_.load(std::memory_order_relaxed);
    stats.evictions = evictions_.load(std::memory_order_relaxed);
    stats.fallbacks = fallbacks_.load(std::memory_order_relaxed);
    stats.scratch_bytes = scratch_bytes_.load(std::memory_order_relaxed);
    stats.device_bytes = device_bytes_.load(std::memory_order_relaxed);
    return stats;
  }

  std::string device() const override {
    return std::string(properties_.name) + ", sm_" + std::to_string(properties_.major) +
           std::to_string(properties_.minor) + ", device " + std::to_string(ordinal_);
  }

  uint32_t max_batch_tokens() const override { return kBatchTokens; }

  bool batch_invariant() const override { return batch_invariant_.load(std::memory_order_relaxed); }

 private:
  using Forward = model::Forward<Backend>;

  const Backend::State *state_of(uint32_t number) const {
    return number != 0 ? &states_.at(number) : nullptr;
  }

  void log(int32_t level, const std::string &line) const {
    if (log_) log_(level, line);
  }

  void count_memory() {
    scratch_bytes_.store(backend_->scratch_bytes(), std::memory_order_relaxed);
    size_t bytes = backend_->device_bytes();
    for (const Backend::State &state : states_) bytes += state.device_bytes();
    device_bytes_.store(bytes, std::memory_order_relaxed);
  }

  // Tells of each tenth, and of the rate.
  void upload_weights() {
    const auto began = std::chrono::steady_clock::now();
    size_t told = 0;
    backend_->upload([&](size_t done, size_t all) {
      const size_t tenth = done * 10 / all;
      if (tenth == told) return;
      told = tenth;
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
      char line[128];
      std::snprintf(line, sizeof line, "weights: %.1f of %.1f GB on device %d, %.1f GB/s",
                    static_cast<double>(done) * 1e-9, static_cast<double>(all) * 1e-9, ordinal_,
                    static_cast<double>(done) * 1e-9 / seconds.count());
      log(CUA_LOG_INFO, line);
    });
  }

  // A pass of every row bucket, so that no request is the first to need its plans. (One of more
  // than 64 sequences needs a plan more, for the queries of the last layer.)
  void make_plans() {
    using backend::cuda::kMostPlannedRows;
    for (uint32_t rows = 1; rows <= kMostPlannedRows; ++rows) {
      if (backend::cuda::row_bucket(rows) != rows) continue;
      const std::vector<uint32_t> ids(rows);
      std::vector<uint32_t> cu_seqlens{0};
      while (cu_seqlens.back() < rows) {
        cu_seqlens.push_back(std::min(cu_seqlens.back() + max_prompt_tokens_, rows));
      }
      const Backend::Batch batch{ids, cu_seqlens, {}};
      prepare(batch);
      run(batch);
    }
    count_memory();
    const backend::cuda::GemmPlans &plans = std::as_const(*backend_).plans();
    for (const std::string &name : plans.passed_over()) {
      log(CUA_LOG_WARNING, "plans: that of the file for " + name +
                               " was passed over: its bits are not those of the reference");
    }
    if (plans.from_file() != 0) {
      log(CUA_LOG_INFO, "plans: " + std::to_string(plans.from_file()) + " of " +
                            std::to_string(plans.size()) + " from the file, the others timed");
    }
    if (const size_t refused = plans.refused(); refused != 0) {
      log(CUA_LOG_INFO,
          std::to_string(refused) + " algorithms of cuBLASLt were passed over: their bits differ");
    }
  }

  // Makes room. Only ever while nothing runs; graphs, which hold the old addresses, are made again.
  void reserve(size_t rows, size_t sequences) {
    if (rows <= measured_rows_ && sequences <= measured_sequences_) return;
    rows = std::max(rows, measured_rows_);
    sequences = std::max(sequences, measured_sequences_);
    const std::vector<uint32_t> ids(rows);
    std::vector<uint32_t> cu_seqlens(sequences + 1);
    for (size_t s = 0; s <= sequences; ++s) cu_seqlens[s] = static_cast<uint32_t>(s);
    cu_seqlens.back() = static_cast<uint32_t>(rows);
    const Backend::Batch batch{ids, cu_seqlens, {}};
    backend_->start_measuring();
    forward_->run(batch, letters_, nullptr);
    const size_t bytes = backend_->stop_measuring();
    if (bytes > backend_->scratch_bytes() || !backend_->fits(batch)) {
      const bool buckets = buckets_.size() != 0;
      drop_graphs();
      measured_rows_ = measured_sequences_ = 0;  // a failure leaves less room than before
      backend_->reserve_scratch(bytes);
      backend_->reserve_batch(rows, sequences);
      count_memory();
      if (buckets) capture_buckets();
    }
    measured_rows_ = rows;
    measured_sequences_ = sequences;
  }

  // Makes room and writes the tables that the pass reads.
  void prepare(const Backend::Batch &batch) {
    reserve(batch.rows(), batch.sequences());
    backend_->stage(batch);
  }

  // Of one sequence, filled up to its bucket's rows.
  void stage_padded(const Backend::Batch &batch) {
    const uint32_t rows = backend::cuda::graph_bucket(static_cast<uint32_t>(batch.rows()));
    padded_.assign(batch.ids.begin(), batch.ids.end());
    padded_.resize(rows);  // with id 0
    const uint32_t cu_seqlens[] = {0, rows};
    backend_->stage({padded_, cu_seqlens, batch.prefixes, nullptr, rows - batch.rows()});
  }

  // The graph that scores such a batch; nullptr where there is none.
  cudaGraphExec_t find_graph(size_t rows, size_t sequences) {
    if (sequences != 1) return nullptr;
    if (mode_ == CUA_GRAPH_EXACT) return graphs_.find(rows);
    if (mode_ != CUA_GRAPH_BUCKET || rows > backend::cuda::kMostBucketRows) return nullptr;
    return buckets_.find(backend::cuda::graph_bucket(static_cast<uint32_t>(rows)));
  }

  void drop_graphs() {
    graphs_.clear();
    buckets_.clear();
  }

  // A graph of every bucket, so that no request captures. The plans exist already.
  void capture_buckets() {
    using backend::cuda::graph_bucket;
    if (graphs_failed_) return;
    const auto began = std::chrono::steady_clock::now();
    size_t free_before = 0, free_after = 0, all = 0;
    (void)cudaMemGetInfo(&free_before, &all);
    const uint32_t most =
        graph_bucket(std::min(max_prompt_tokens_, backend::cuda::kMostBucketRows));
    for (uint32_t rows = graph_bucket(1); rows <= most; rows = graph_bucket(rows + 1)) {
      const std::vector<uint32_t> ids(rows);
      const uint32_t cu_seqlens[] = {0, rows};
      const cudaGraphExec_t captured = capture({ids, cu_seqlens, {}});
      if (captured == nullptr) return;  // told, and graphs are off
      buckets_.insert(rows, captured);
    }
    (void)cudaMemGetInfo(&free_after, &all);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    char line[128];
    std::snprintf(line, sizeof line, "graphs: %zu buckets to %u rows in %.2f s, %.0f MB",
                  buckets_.size(), most, seconds.count(),
                  static_cast<double>(free_before - std::min(free_before, free_after)) * 1e-6);
    log(CUA_LOG_INFO, line);
  }

  void run(const Backend::Batch &batch) {
    forward_->run(batch, letters_, nullptr);
    backend_->wait();
    const std::string &dependence = backend_->plans().dependence();
    if (!dependence.empty() && batch_invariant_.exchange(false)) {
      log(CUA_LOG_WARNING,
          "the bits of an answer depend on its company on this card: " + dependence);
    }
  }

  // Records the pass of a batch as a graph; its room and plans are there. The caller owns it.
  // nullptr where that fails; graphs then stay off for the engine's life.
  cudaGraphExec_t capture(const Backend::Batch &batch) {
    std::string reason;
    for (int attempt = 0; attempt < kCaptureAttempts; ++attempt) {
      const auto [instance, broken] = try_capture(batch, reason);
      if (instance != nullptr) {
        captures_.fetch_add(1, std::memory_order_relaxed);
        return instance;
      }
      if (!broken) break;
    }
    graphs_failed_ = true;
    drop_graphs();
    fallbacks_.fetch_add(1, std::memory_order_relaxed);
    log(CUA_LOG_WARNING, "graph capture failed (" + reason +
                             "); answers stay right, graphs are off for this engine");
    return nullptr;
  }

  struct Captured {
    cudaGraphExec_t instance = nullptr;
    bool broken = false;  // from outside: it may work next time
  };

  Captured try_capture(const Backend::Batch &batch, std::string &reason) {
    const cudaStream_t stream = backend_->stream();
    cudaGraph_t graph = nullptr;
    Captured captured;
    reason.clear();
    const auto step = [&](cudaError_t status, const char *what) {
      if (status == cudaSuccess) return true;
      if (status == cudaErrorStreamCaptureInvalidated) captured.broken = true;
      if (reason.empty()) reason = std::string(what) + ": " + cudaGetErrorString(status);
      return false;
    };
    if (step(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin")) {
      try {
        forward_->run(batch, letters_, nullptr);
      } catch (const Error &error) {
        reason = error.what();
      }
      // Ends the capture whatever happened in it.
      if (step(cudaStreamEndCapture(stream, &graph), "end") && reason.empty() &&
          step(cudaGraphInstantiate(&captured.instance, graph, 0), "instantiate")) {
        (void)step(cudaGraphUpload(captured.instance, stream), "upload");
        (void)step(cudaStreamSynchronize(stream), "upload");
      }
    }
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    if (!reason.empty() && captured.instance != nullptr) {
      (void)cudaGraphExecDestroy(captured.instance);
      captured.instance = nullptr;
    }
    (void)cudaGetLastError();
    return captured;
  }

  cudaDeviceProp properties_;
  int ordinal_;
  std::array<uint32_t, 26> letters_;
  uint32_t max_prompt_tokens_;
  Log log_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Forward> forward_;
  std::deque<Backend::State> states_;  // by number; 0 is none
  std::vector<const Backend::State *> prefixes_;
  backend::cuda::GraphCache graphs_;                                       // mode exact
  backend::cuda::GraphCache buckets_{std::numeric_limits<size_t>::max()};  // mode bucket
  std::vector<uint32_t> padded_;
  uint32_t mode_ = CUA_GRAPH_OFF;
  bool graphs_failed_ = false;
  std::atomic<bool> batch_invariant_{true};
  size_t measured_rows_ = 0, measured_sequences_ = 0;
  std::atomic<uint64_t> captures_{0}, replays_{0}, evictions_{0}, fallbacks_{0};
  std::atomic<uint64_t> scratch_bytes_{0}, device_bytes_{0};
};

}  // namespace

std::unique_ptr<Executor> make_executor(const checkpoint::Checkpoint &checkpoint,
                                        const std::array<uint32_t, 26> &letters,
                                        uint32_t max_prompt_tokens,
                                        const ExecutorOptions &options) {
  return std::make_unique<CudaExecutor>(checkpoint, letters, max_prompt_tokens, options);
}

}  // namespace cua::engine
