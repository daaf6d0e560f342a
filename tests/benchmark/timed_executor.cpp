// SPDX-License-Identifier: Apache-2.0
// The CPU library's executor, which also counts the nanoseconds inside score(): cua_stats gives them
// as scratch_bytes. For abi_cost.
#define make_executor make_untimed_executor
#include "engine/executor_cpu.cpp"
#undef make_executor

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

namespace cua::engine {
namespace {

class TimedExecutor final : public Executor {
 public:
  explicit TimedExecutor(std::unique_ptr<Executor> inner) : inner_(std::move(inner)) {}
  uint32_t score(const Pass &pass, float *logits) override {
    const auto began = std::chrono::steady_clock::now();
    const uint32_t flags = inner_->score(pass, logits);
    inside_ += static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count());
    return flags;
  }
  ExecutorStats stats() const override {
    ExecutorStats stats = inner_->stats();
    stats.scratch_bytes = inside_;
    return stats;
  }
  void keep_state(uint32_t number, std::span<const uint32_t> ids, uint32_t from) override {
    inner_->keep_state(number, ids, from);
  }
  size_t pass_cost() const override { return inner_->pass_cost(); }
  void set_graph_mode(uint32_t mode) override { inner_->set_graph_mode(mode); }
  std::string device() const override { return inner_->device(); }
  uint32_t max_batch_tokens() const override { return inner_->max_batch_tokens(); }
  bool batch_invariant() const override { return inner_->batch_invariant(); }

 private:
  std::unique_ptr<Executor> inner_;
  std::atomic<uint64_t> inside_{0};
};

}  // namespace

std::unique_ptr<Executor> make_executor(const checkpoint::Checkpoint &checkpoint,
                                        const std::array<uint32_t, 26> &letters,
                                        uint32_t max_prompt_tokens,
                                        const ExecutorOptions &options) {
  return std::make_unique<TimedExecutor>(
      make_untimed_executor(checkpoint, letters, max_prompt_tokens, options));
}

}  // namespace cua::engine
