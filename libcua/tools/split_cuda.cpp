// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/backend.h"
#include "checkpoint/checkpoint.h"
#include "model/dimensions.h"
#include "model/forward.h"
#include "model/tensors.h"
#include "tools/split.h"
#include "tools/timed_backend.h"

namespace cua::tools {
namespace {

using backend::cuda::check;
using backend::cuda::DeviceMemory;

// Two events around each operation, read once the stream is idle.
class EventClock {
 public:
  EventClock() = default;
  EventClock(const EventClock &) = delete;
  EventClock &operator=(const EventClock &) = delete;
  ~EventClock() {
    for (const Span &span : spans_) {
      (void)cudaEventDestroy(span.start);
      (void)cudaEventDestroy(span.stop);
    }
  }
  template <class Backend, class Run>
  void time(Backend &backend, const std::string &name, const Run &run) {
    if (used_ == spans_.size()) {
      spans_.emplace_back();
      check(cudaEventCreate(&spans_.back().start), "making an event");
      check(cudaEventCreate(&spans_.back().stop), "making an event");
    }
    Span &span = spans_[used_++];
    span.name = name;
    check(cudaEventRecord(span.start, backend.stream()), "timing");
    run();
    check(cudaEventRecord(span.stop, backend.stream()), "timing");
  }
  std::map<std::string, double> read() {
    std::map<std::string, double> seconds;
    for (size_t i = 0; i < used_; ++i) {
      float milliseconds = 0;
      check(cudaEventSynchronize(spans_[i].stop), "timing");
      check(cudaEventElapsedTime(&milliseconds, spans_[i].start, spans_[i].stop), "timing");
      seconds[spans_[i].name] += milliseconds * 1e-3;
    }
    used_ = 0;
    return seconds;
  }

 private:
  struct Span {
    std::string name;
    cudaEvent_t start = nullptr, stop = nullptr;
  };
  std::vector<Span> spans_;
  size_t used_ = 0;
};

using Timed = TimedBackend<backend::cuda::Backend, EventClock, 2>;

// Seconds of one of several runs.
template <class Run>
double seconds_on(cudaStream_t stream, const Run &run) {
  constexpr int kRuns = 20;
  struct {
    cudaStream_t stream() const { return of; }
    cudaStream_t of;
  } const on{stream};
  EventClock clock;
  run();
  clock.time(on, "", [&] {
    for (int i = 0; i < kRuns; ++i) run();
  });
  return clock.read()[""] / kRuns;
}

void measure_ceilings(cudaStream_t stream, Split &split) {
  constexpr size_t kBytes = size_t{1} << 30;
  const DeviceMemory from(kBytes, "measuring the card"), to(kBytes, "measuring the card");
  using backend::cuda::bf16;
  backend::cuda::fill_random(from.as<bf16>(), kBytes / sizeof(bf16), 1, stream);
  split.copy_bytes_per_s = 2 * kBytes / seconds_on(stream, [&] {
                             check(cudaMemcpyAsync(to.as<std::byte>(), from.as<std::byte>(), kBytes,
                                                   cudaMemcpyDeviceToDevice, stream),
                                   "measuring the card");
                           });
  constexpr uint32_t kSize = 8192;
  backend::cuda::GemmPlans plans;
  const bf16 *const x = from.as<bf16>(), *const w = x + size_t{kSize} * kSize;
  const double seconds = seconds_on(stream, [&] {
    plans.run(x, w, to.as<bf16>(), kSize, kSize, kSize, kSize, kSize, false, stream);
  });
  split.product_flops_per_s = 2.0 * kSize * kSize * kSize / seconds;
}

size_t weight_bytes(const checkpoint::Checkpoint &checkpoint) {
  size_t bytes = 0;
  for (const model::TensorSpec &spec : model::tensors(checkpoint.config())) {
    const backend::HostTensor &tensor = checkpoint.tensor(spec.name);
    bytes += spec.shape.size() == 2 ? Timed::matrix_bytes(tensor) : Timed::vector_bytes(tensor);
  }
  return bytes;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void cua_bench_split_cuda(
    const SplitRequest &request, Split &split) {
  const backend::cuda::CurrentDevice current(request.device);
  const checkpoint::Checkpoint checkpoint(request.model);
  const uint32_t longest = *std::max_element(request.lengths.begin(), request.lengths.end());
  Timed backend(model::dimensions(checkpoint.config()), weight_bytes(checkpoint), longest);
  model::Forward<Timed> forward(
      backend, checkpoint.config(), [&](const std::string &name) -> const auto & {
        return checkpoint.tensor(name);
      });
  backend.upload({});
  measure_ceilings(backend.stream(), split);
  std::array<uint32_t, 26> letters;
  std::iota(letters.begin(), letters.end(), 32);
  for (const uint32_t tokens : request.lengths) {
    const SplitBatch prompts(request, tokens, checkpoint.config().vocabulary);
    const Timed::Batch batch{prompts.ids, prompts.cu_seqlens, {}};
    backend.start_measuring();
    forward.run(batch, letters, nullptr);
    backend.reserve_scratch(backend.stop_measuring());
    if (!backend.fits(batch)) backend.reserve_batch(batch.rows(), batch.sequences());
    backend.stage(batch);
    const auto run = [&] { forward.run(batch, letters, nullptr); };
    for (int i = 0; i < 3; ++i) run();  // the first makes the plans
    backend.wait();

    SplitPass pass;
    pass.tokens = tokens;
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(backend.stream(), cudaStreamCaptureModeThreadLocal), "capturing");
    run();
    check(cudaStreamEndCapture(backend.stream(), &graph), "capturing");
    const cudaError_t status = cudaGraphGetNodes(graph, nullptr, &pass.launches);
    (void)cudaGraphDestroy(graph);
    check(status, "counting launches");

    backend.time_operations(true);
    for (uint32_t i = 0; i < request.runs; ++i) run();
    backend.time_operations(false);
    backend.wait();
    pass.operations = backend.operations(request.runs);
    split.passes.push_back(std::move(pass));
  }
}

}  // namespace cua::tools
