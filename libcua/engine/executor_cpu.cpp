// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "backend/cpu/backend.h"
#include "build_info_cpu.h"
#include "engine/executor.h"
#include "error.h"
#include "model/dimensions.h"
#include "model/forward.h"

namespace cua::engine {

const char *backend_name() noexcept { return "cpu"; }

const char *build_info() noexcept {
  return "{\"version\":\"" CUA_VERSION
         "\",\"backend\":\"cpu\",\"architectures\":[" CUA_ARCHITECTURES
         "],\"cuda\":null,\"cublaslt\":null}";
}

namespace {

using Backend = backend::cpu::Backend<float>;

size_t thread_count(uint32_t wanted) {
  if (wanted != 0) return wanted;
  return std::max(1u, std::thread::hardware_concurrency());
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const checkpoint::Checkpoint &checkpoint, const std::array<uint32_t, 26> &letters,
              const ExecutorOptions &options)
      : letters_(letters),
        backend_(model::dimensions(checkpoint.config()), thread_count(options.threads)),
        forward_(
            backend_, checkpoint.config(), [&](const std::string &name) -> const auto & {
              return checkpoint.tensor(name);
            }) {
    set_graph_mode(options.graph_mode);
  }

  void keep_state(uint32_t number, std::span<const uint32_t> ids, uint32_t from) override {
    Backend::State state;
    const uint32_t seqlens[] = {0, static_cast<uint32_t>(ids.size())};
    const Backend::State *const before[] = {state_of(from)};
    std::array<float, 26> logits;
    forward_.run({ids, seqlens, before, &state}, letters_, logits.data());
    if (states_.size() <= number) states_.resize(number + 1);
    states_[number] = std::move(state);
  }

  // Rows cost the same wherever they are; the rest is a guess.
  size_t pass_cost() const override { return 32; }

  uint32_t score(const Pass &pass, float *logits) override {
    std::vector<const Backend::State *> prefixes;
    for (const uint32_t number : pass.states) prefixes.push_back(state_of(number));
    forward_.run({pass.ids, pass.cu_seqlens, prefixes}, letters_, logits);
    scratch_bytes_.store(backend_.scratch_bytes(), std::memory_order_relaxed);
    return 0;
  }

  void set_graph_mode(uint32_t mode) override {
    if (mode == CUA_GRAPH_OFF) return;
    throw Error(CUA_UNSUPPORTED,
                "graph_mode " + std::to_string(mode) +
                    ": the CPU library has no CUDA graphs; use mode 0 or the CUDA library");
  }

  ExecutorStats stats() const override {
    ExecutorStats stats;
    stats.scratch_bytes = scratch_bytes_.load(std::memory_order_relaxed);
    return stats;
  }

  std::string device() const override {
    return "CPU, " + std::string(backend::cpu::kernels<float>().name) + ", " +
           std::to_string(backend_.threads()) + (backend_.threads() == 1 ? " thread" : " threads");
  }

  // Enough rows to fill the register tiles; more only grows the scratch.
  uint32_t max_batch_tokens() const override { return 4096; }

  bool batch_invariant() const override { return true; }

 private:
  const Backend::State *state_of(uint32_t number) const {
    return number != 0 ? &states_.at(number) : nullptr;
  }

  std::array<uint32_t, 26> letters_;
  Backend backend_;
  model::Forward<Backend> forward_;
  std::deque<Backend::State> states_;  // by number; 0 is none
  std::atomic<uint64_t> scratch_bytes_{0};
};

}  // namespace

std::unique_ptr<Executor> make_executor(const checkpoint::Checkpoint &checkpoint,
                                        const std::array<uint32_t, 26> &letters,
                                        uint32_t /*max_prompt_tokens*/,
                                        const ExecutorOptions &options) {
  return std::make_unique<CpuExecutor>(checkpoint, letters, options);
}

}  // namespace cua::engine
