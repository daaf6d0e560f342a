// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/backend.h"
#include "tools/cuda_module.h"
#include "tools/device_model.h"
#include "tools/device_timing.h"
#include "tools/timed_backend.h"

namespace cua::tools {
namespace {

using backend::cuda::DeviceMemory;

using Timed = TimedBackend<backend::cuda::Backend, EventClock, 2>;

void measure_ceilings(cudaStream_t stream, Split &split) {
  constexpr size_t kBytes = size_t{1} << 30;
  const DeviceMemory from(kBytes, "measuring the card"), to(kBytes, "measuring the card");
  using backend::cuda::bf16;
  backend::cuda::fill_random(from.as<bf16>(), kBytes / sizeof(bf16), 1, stream);
  split.copy_bytes_per_s = copy_bytes_per_s(from, to, stream);
  constexpr uint32_t kSize = 8192;
  backend::cuda::GemmPlans plans;
  const bf16 *const x = from.as<bf16>(), *const w = x + size_t{kSize} * kSize;
  const double seconds = seconds_on(stream, [&] {
    plans.run(x, w, to.as<bf16>(), kSize, kSize, kSize, kSize, kSize, false, stream);
  });
  split.product_flops_per_s = 2.0 * kSize * kSize * kSize / seconds;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void cua_bench_split_cuda(
    const SplitRequest &request, Split &split) {
  const backend::cuda::CurrentDevice current(request.device);
  const uint32_t longest = *std::max_element(request.lengths.begin(), request.lengths.end());
  DeviceModel<Timed> model(request.model, longest);
  Timed &backend = model.backend;
  measure_ceilings(backend.stream(), split);
  for (const uint32_t tokens : request.lengths) {
    const SplitBatch prompts(request, tokens, model.checkpoint.config().vocabulary);
    const Timed::Batch batch{prompts.ids, prompts.cu_seqlens, {}};
    model.prepare(batch);
    const auto run = [&] { model.run(batch); };
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
