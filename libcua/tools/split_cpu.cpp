// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "backend/cpu/backend.h"
#include "checkpoint/checkpoint.h"
#include "model/dimensions.h"
#include "model/forward.h"
#include "tools/bench_measure.h"
#include "tools/split.h"
#include "tools/timed_backend.h"

namespace cua::tools {
namespace {

class CpuClock {
 public:
  template <class Backend, class Run>
  void time(Backend &, const std::string &name, const Run &run) {
    seconds_[name] += seconds_of(run);
  }
  std::map<std::string, double> read() { return std::exchange(seconds_, {}); }

 private:
  std::map<std::string, double> seconds_;
};

using Timed = TimedBackend<backend::cpu::Backend<float>, CpuClock, sizeof(float)>;

}  // namespace

Split split_cpu(const SplitRequest &request) {
  const checkpoint::Checkpoint checkpoint(request.model);
  Timed backend(
      model::dimensions(checkpoint.config()),
      request.threads != 0 ? request.threads : std::max(1u, std::thread::hardware_concurrency()));
  model::Forward<Timed> forward(
      backend, checkpoint.config(), [&](const std::string &name) -> const auto & {
        return checkpoint.tensor(name);
      });
  std::array<uint32_t, 26> letters;
  std::iota(letters.begin(), letters.end(), 32);
  Split split;
  for (const uint32_t tokens : request.lengths) {
    const SplitBatch batch(request, tokens, checkpoint.config().vocabulary);
    std::vector<float> logits(26 * request.batch);
    const auto run = [&] {
      forward.run({batch.ids, batch.cu_seqlens, {}}, letters, logits.data());
    };
    run();  // faults the weights in
    backend.time_operations(true);
    for (uint32_t i = 0; i < request.runs; ++i) run();
    backend.time_operations(false);
    split.passes.push_back({tokens, 0, backend.operations(request.runs)});
  }
  return split;
}

}  // namespace cua::tools
