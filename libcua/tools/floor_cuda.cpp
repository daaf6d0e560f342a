// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/backend.h"
#include "tools/bench_measure.h"
#include "tools/cuda_module.h"
#include "tools/device_model.h"
#include "tools/device_timing.h"
#include "tools/read_memory.h"
#include "tools/timed_backend.h"

namespace cua::tools {
namespace {

using backend::cuda::Backend;
using backend::cuda::bf16;
using backend::cuda::DeviceMemory;

enum class Part { all, products, attention };

// Leaves out of a pass what is not of the part, and keeps the order, shapes and weights of the
// rest.
class PartBackend : public Backend {
 public:
  using Backend::Backend;
  Part part = Part::all;
  double weights_bytes = 0;  // that products were asked to read, once each

  Scope begin(const Batch &batch) { return part == Part::all ? Backend::begin(batch) : scratch(); }
  void linear(const Tensor &x, const Matrix &w, const Tensor &y) {
    weights_bytes += static_cast<double>(w.rows * w.cols * sizeof(bf16));
    if (part != Part::attention) Backend::linear(x, w, y);
  }
  void linear_add(const Tensor &x, const Matrix &w, const Tensor &y) {
    weights_bytes += static_cast<double>(w.rows * w.cols * sizeof(bf16));
    if (part != Part::attention) Backend::linear_add(x, w, y);
  }
  template <class... Arguments>
  void attention(const Arguments &...arguments) {
    if (part != Part::products) Backend::attention(arguments...);
  }

  template <class... Arguments>
  void embed(const Arguments &...arguments) {
    if (part == Part::all) Backend::embed(arguments...);
  }
  template <class... Arguments>
  void rms_norm(const Arguments &...arguments) {
    if (part == Part::all) Backend::rms_norm(arguments...);
  }
  template <class... Arguments>
  void gather_last(const Arguments &...arguments) {
    if (part == Part::all) Backend::gather_last(arguments...);
  }
  template <class... Arguments>
  void gdn_prepare(const Arguments &...arguments) {
    if (part == Part::all) Backend::gdn_prepare(arguments...);
  }
  template <class... Arguments>
  void gdn_scan(const Arguments &...arguments) {
    if (part == Part::all) Backend::gdn_scan(arguments...);
  }
  template <class... Arguments>
  void gated_norm(const Arguments &...arguments) {
    if (part == Part::all) Backend::gated_norm(arguments...);
  }
  template <class... Arguments>
  void attention_prepare(const Arguments &...arguments) {
    if (part == Part::all) Backend::attention_prepare(arguments...);
  }
  template <class... Arguments>
  void silu_mul(const Arguments &...arguments) {
    if (part == Part::all) Backend::silu_mul(arguments...);
  }
  void readout(const Tensor &x, const Matrix &embedding, const std::array<uint32_t, 26> &letters,
               float *logits, float *hidden) {
    if (part == Part::all) Backend::readout(x, embedding, letters, logits, hidden);
  }

  // Of a part, what it reads is what stands there: values in [-1, 1), so that the card draws the
  // power of real ones and no sum overflows.
  void fill_scratch() {
    using backend::cuda::kRoomRows;
    const Scope scope = scratch();
    const Tensor all = tensor(kRoomRows, scratch_bytes() / (kRoomRows * sizeof(bf16)));
    backend::cuda::fill_random(all.data, all.rows * all.cols, 1, stream());
  }
};

// Counts the arithmetic as --split does.
using Counting = TimedBackend<PartBackend, EventClock, 2>;

// A captured graph.
class Graph {
 public:
  template <class Run>
  Graph(cudaStream_t stream, const Run &run) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    run();
    check(cudaStreamEndCapture(stream, &graph), "capturing");
    const cudaError_t status = cudaGraphInstantiate(&instance_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(status, "making a graph");
  }
  ~Graph() { (void)cudaGraphExecDestroy(instance_); }
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;
  void launch() const { check(cudaGraphLaunch(instance_, stream_), "replaying a graph"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t instance_ = nullptr;
};

double read_bytes_per_s(const DeviceMemory &from, int32_t device, cudaStream_t stream) {
  int processors = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
        "measuring the card");
  const DeviceMemory found(sizeof(uint32_t), "measuring the card");
  return static_cast<double>(from.bytes()) / seconds_on(stream, [&] {
           read_memory(from.as<std::byte>(), from.bytes(), found.as<uint32_t>(), 4 * processors,
                       stream);
           check(cudaGetLastError(), "measuring the card");
         });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void cua_bench_floor_cuda(
    const FloorRequest &request, Floor &floor) {
  const backend::cuda::CurrentDevice current(request.device);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, request.device), "reading the device's properties");
  floor.device = properties.name;
  const uint32_t longest = *std::max_element(request.lengths.begin(), request.lengths.end());
  DeviceModel<Counting> model(request.model, longest);
  Counting &backend = model.backend;
  constexpr size_t kBytes = size_t{1} << 30;
  const DeviceMemory from(kBytes, "measuring the card"), to(kBytes, "measuring the card");
  backend::cuda::fill_random(from.as<bf16>(), kBytes / sizeof(bf16), 1, backend.stream());
  floor.copy_bytes_per_s = copy_bytes_per_s(from, to, backend.stream());
  floor.read_bytes_per_s = read_bytes_per_s(from, request.device, backend.stream());

  for (const uint32_t tokens : request.lengths) {
    const std::vector<uint32_t> ids(tokens);
    const uint32_t cu_seqlens[] = {0, tokens};
    const Counting::Batch batch{ids, cu_seqlens, {}};
    FloorPass pass;
    pass.tokens = tokens;
    backend.part = Part::all;
    backend.weights_bytes = 0;
    backend.time_operations(true);  // while nothing runs, to count
    model.prepare(batch);
    backend.time_operations(false);
    pass.weights_bytes = backend.weights_bytes;
    for (const SplitOperation &operation : backend.operations(1)) {
      if (operation.name == "attention") pass.attention.flops += operation.flops;
      if (operation.name.rfind("linear", 0) == 0) pass.products.flops += operation.flops;
    }
    model.run(batch);  // makes the plans, and copies the tables
    backend.wait();
    for (const Part part : {Part::products, Part::attention}) {
      backend.part = part;
      const Graph graph(backend.stream(), [&] { model.run(batch); });
      EventClock clock;
      constexpr uint32_t kWarmUps = 3;
      for (uint32_t i = 0; i < kWarmUps + request.runs; ++i) {
        // Longer than the launch of the graph takes, so that the device never waits for it; and the
        // caches are cold.
        check(cudaMemcpyAsync(to.as<std::byte>(), from.as<std::byte>(), kBytes,
                              cudaMemcpyDeviceToDevice, backend.stream()),
              "measuring the card");
        backend.fill_scratch();
        if (i < kWarmUps) {
          graph.launch();
        } else {
          clock.time(backend, std::to_string(i), [&] { graph.launch(); });
        }
      }
      backend.wait();
      std::vector<double> seconds;
      for (const auto &[run, time] : clock.read()) seconds.push_back(time);
      (part == Part::products ? pass.products : pass.attention).seconds = spread_of(seconds).median;
    }
    floor.passes.push_back(pass);
  }
}

}  // namespace cua::tools
