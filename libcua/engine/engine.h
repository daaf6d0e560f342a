// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "engine/executor.h"
#include "tokenizer/tokenizer.h"

namespace cua::engine {

inline constexpr uint32_t kLetters = 26;

struct EngineOptions {
  std::filesystem::path model_dir;
  uint32_t max_prompt_tokens = 0;     // 0: 16384
  uint32_t max_batch_tokens = 0;      // 0: the backend's choice
  uint32_t precision = 0;             // 0: the backend's own; 1: fp8
  std::optional<std::string> prefix;  // text
  ExecutorOptions executor;
};

struct Prompt {
  std::span<const uint32_t> ids;  // where empty, text
  std::string_view text;
  uint32_t n_options = 0;  // 1 to 26
};

struct Score {
  uint64_t n_ids = 0;
  uint32_t best = 0;   // earliest of the largest logits in use
  uint32_t flags = 0;  // CUA_SCORE_*
  std::array<float, kLetters> logits{};
  std::array<float, kLetters> probabilities{};  // 0 from n_options on
};

struct EngineStats {
  uint64_t forwards = 0, prompts = 0, tokens = 0;
  ExecutorStats executor;
};

// Softmax over the first n_options logits, in double with the maximum subtracted, rounded to float;
// the others are 0. Sets score.best too.
void read_out(uint32_t n_options, Score &score);

// One loaded model: tokenizer, executor, readout. Thread safe; scoring calls run one after another.
class Engine {
 public:
  explicit Engine(const EngineOptions &options);

  std::string describe() const;  // JSON
  // Throws UNSUPPORTED for a folder without a tokenizer.
  std::vector<uint32_t> tokenize(std::string_view text) const;
  // All prompts are checked before the first pass. Errors name the prompt by its index.
  std::vector<Score> score(std::span<const Prompt> prompts);
  void set_graph_mode(uint32_t mode);
  EngineStats stats() const;

 private:
  // Where a prompt starts: the executor's number of a kept state, and the tokens that made it.
  struct Start {
    uint32_t state = 0;
    size_t tokens = 0;
  };

  std::vector<uint32_t> check(const Prompt &prompt) const;
  Start start_of(std::span<const uint32_t> ids) const;
  std::vector<Start> starts_of(std::span<const std::vector<uint32_t>> ids);
  bool keep_state(uint32_t number, std::span<const uint32_t> ids, Start from);
  std::vector<Score> score_passes(std::span<const Prompt> prompts,
                                  std::span<const std::vector<uint32_t>> ids);
  void score_pass(std::span<const Prompt> prompts, std::span<const std::vector<uint32_t>> ids,
                  std::span<const Start> starts, std::span<Score> scores);

  checkpoint::Checkpoint checkpoint_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // nullptr: ids only
  std::unique_ptr<Executor> executor_;
  uint32_t max_prompt_tokens_, max_batch_tokens_;
  std::vector<uint32_t> prefix_;  // ids of the state that is kept for good
  std::mutex scoring_;
  std::atomic<bool> failed_{false};  // the device is lost: sticky
  std::atomic<uint64_t> forwards_{0}, prompts_{0}, tokens_{0};
};

}  // namespace cua::engine
