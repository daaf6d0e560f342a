// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "library.h"

namespace cua_server::scheduling {

// What the library said of a call: its code and message.
class EngineError : public std::runtime_error {
 public:
  EngineError(int32_t code, const std::string &message)
      : std::runtime_error(message), code_(code) {}
  int32_t code() const noexcept { return code_; }

 private:
  int32_t code_;
};

struct EngineOptions {
  std::string model_dir;
  int32_t device = 0;
  uint32_t graph_mode = 0;
  uint32_t threads = 0;
  uint32_t max_batch_tokens = 0;
  std::string prefix;  // text that prompts begin with
  std::string plans;   // file of GEMM plans; empty: none
};

struct Prompt {
  std::vector<uint32_t> ids;
  uint32_t n_options = 0;
};

// One engine of the library. Calls throw EngineError.
class Engine {
 public:
  // Lines of the library's log go to the server's.
  Engine(const Library &library, const EngineOptions &options);
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  std::optional<std::string> model() const { return model_; }  // the marker's id
  bool has_tokenizer() const { return has_tokenizer_; }
  uint64_t max_prompt_tokens() const { return max_prompt_tokens_; }
  uint64_t max_batch_tokens() const { return max_batch_tokens_; }  // of one pass
  const std::string &device() const { return device_; }

  // Any thread.
  std::vector<uint32_t> tokenize(std::string_view text) const;
  // One score a prompt.
  std::vector<cua_score> score(std::span<const Prompt *const> prompts);
  cua_stats stats() const;  // any thread

 private:
  void describe();

  const Library &library_;
  cua_engine *engine_ = nullptr;
  std::optional<std::string> model_;
  bool has_tokenizer_ = false;
  uint64_t max_prompt_tokens_ = 0, max_batch_tokens_ = 0;
  std::string device_;
};

}  // namespace cua_server::scheduling
