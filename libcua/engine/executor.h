// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"

namespace cua::engine {

// Where the lines of a log go. Level: CUA_LOG_*.
using Log = std::function<void(int32_t level, std::string_view message)>;

struct ExecutorOptions {
  int32_t device = 0;           // CUDA ordinal
  uint32_t threads = 0;         // CPU; 0: all cores
  uint32_t graph_mode = 0;      // CUA_GRAPH_*
  uint32_t graph_capacity = 0;  // 0: 8
  std::string plans;            // path of a file of GEMM plans; empty: built in
  Log log;
};

// Counters since the executor was made; the fields of cua_stats that only it knows.
struct ExecutorStats {
  uint64_t captures = 0, replays = 0, evictions = 0, fallbacks = 0;
  uint64_t scratch_bytes = 0, device_bytes = 0;
};

// What one forward pass takes: B sequences packed into T rows.
struct Pass {
  std::span<const uint32_t> ids;         // [T]
  std::span<const uint32_t> cu_seqlens;  // [B + 1]
  std::span<const uint32_t> states;      // [B], the number of the kept state it starts from, or 0
};

// The forward pass of one checkpoint on one backend. One call at a time, except stats().
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs ids [n] once, after what made the kept state `from` (0: from nothing), and keeps the state
  // after them as number `number`, at least 1, in the place of what that was. All together are a
  // multiple of 64. On OUT_OF_MEMORY the number holds nothing.
  virtual void keep_state(uint32_t number, std::span<const uint32_t> ids, uint32_t from) = 0;
  // Rows that a pass more has to save in others before it is worth it.
  virtual size_t pass_cost() const = 0;
  // logits [B, 26]. Returns CUA_SCORE_REPLAYED and CUA_SCORE_CAPTURED as they apply.
  virtual uint32_t score(const Pass &pass, float *logits) = 0;
  virtual void set_graph_mode(uint32_t mode) = 0;
  virtual ExecutorStats stats() const = 0;
  virtual std::string device() const = 0;         // in words
  virtual uint32_t max_batch_tokens() const = 0;  // the backend's choice
  // Whether a prompt's bits are the same alone and in any company, split or whole.
  virtual bool batch_invariant() const = 0;
};

// Each library links one of these. The checkpoint must outlive the executor.
// letters: the embedding rows of A to Z.
std::unique_ptr<Executor> make_executor(const checkpoint::Checkpoint &checkpoint,
                                        const std::array<uint32_t, 26> &letters,
                                        uint32_t max_prompt_tokens, const ExecutorOptions &options);
const char *backend_name() noexcept;  // "cuda" or "cpu"
const char *build_info() noexcept;    // static JSON, as cua_build_info gives it

}  // namespace cua::engine
