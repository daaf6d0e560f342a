// SPDX-License-Identifier: Apache-2.0
#include "scheduling/engine.h"

#include <boost/json.hpp>

#include "telemetry/log.h"

namespace cua_server::scheduling {
namespace {

void log_line(void *, int32_t level, const char *message, uint64_t length) {
  using telemetry::Level;
  static constexpr Level kLevels[] = {Level::error, Level::warning, Level::info, Level::debug};
  telemetry::log(level >= 0 && level < 4 ? kLevels[level] : Level::info,
                 {message, static_cast<size_t>(length)});
}

// A call's error struct, and the exception made of it.
struct Outcome {
  Outcome() { error.struct_size = sizeof error; }
  void check(int32_t code) const {
    if (code != CUA_OK) throw EngineError(code, error.message);
  }
  cua_error error{};
};

}  // namespace

Engine::Engine(const Library &library, const EngineOptions &options) : library_(library) {
  cua_engine_options o{};
  o.struct_size = sizeof o;
  o.device = options.device;
  o.model_dir = options.model_dir.data();
  o.model_dir_length = options.model_dir.size();
  o.graph_mode = options.graph_mode;
  o.log = log_line;
  o.threads = options.threads;
  o.max_batch_tokens = options.max_batch_tokens;
  o.prefix = options.prefix.data();
  o.prefix_length = options.prefix.size();
  o.plans = options.plans.data();
  o.plans_length = options.plans.size();
  Outcome outcome;
  outcome.check(library_.engine_create(&o, &engine_, &outcome.error));
  try {
    describe();
  } catch (...) {
    library_.engine_destroy(engine_);
    throw;
  }
}

Engine::~Engine() { library_.engine_destroy(engine_); }

void Engine::describe() {
  uint64_t needed = 0;
  Outcome outcome;
  const int32_t code = library_.engine_describe(engine_, nullptr, 0, &needed, &outcome.error);
  if (code != CUA_BUFFER_TOO_SMALL) outcome.check(code);
  std::string text(needed, '\0');
  outcome.check(
      library_.engine_describe(engine_, text.data(), text.size(), &needed, &outcome.error));
  text.resize(needed);
  boost::json::error_code error;
  const boost::json::value json = boost::json::parse(text, error);
  const auto *const object = error ? nullptr : json.if_object();
  const auto field = [&](const char *name) {
    return object == nullptr ? nullptr : object->if_contains(name);
  };
  const auto *const tokens = field("max_prompt_tokens");
  if (tokens == nullptr || !tokens->is_number()) {
    throw EngineError(CUA_INTERNAL, "cua_engine_describe gave no max_prompt_tokens");
  }
  max_prompt_tokens_ = max_batch_tokens_ = tokens->to_number<uint64_t>();
  if (const auto *const batch = field("max_batch_tokens"); batch != nullptr && batch->is_number()) {
    max_batch_tokens_ = batch->to_number<uint64_t>();
  }
  if (const auto *const model = field("model"); model != nullptr && model->is_string()) {
    model_ = std::string(model->as_string());
  }
  if (const auto *const device = field("device"); device != nullptr && device->is_string()) {
    device_ = std::string(device->as_string());
  }
  const auto *const tokenizer = field("tokenizer");
  has_tokenizer_ = tokenizer != nullptr && tokenizer->is_bool() && tokenizer->as_bool();
}

std::vector<uint32_t> Engine::tokenize(std::string_view text) const {
  // A token has a byte of normalised text at least; NFC rarely makes a text longer.
  std::vector<uint32_t> ids(text.size() / 2 + 16);
  uint64_t count = 0;
  Outcome outcome;
  int32_t code = library_.tokenize(engine_, text.data(), text.size(), ids.data(), ids.size(),
                                   &count, &outcome.error);
  if (code == CUA_BUFFER_TOO_SMALL) {
    ids.resize(count);
    code = library_.tokenize(engine_, text.data(), text.size(), ids.data(), ids.size(), &count,
                             &outcome.error);
  }
  outcome.check(code);
  ids.resize(count);
  return ids;
}

std::vector<cua_score> Engine::score(std::span<const Prompt *const> prompts) {
  std::vector<cua_prompt> arguments(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    arguments[i] = {};
    arguments[i].struct_size = sizeof(cua_prompt);
    arguments[i].n_options = prompts[i]->n_options;
    arguments[i].ids = prompts[i]->ids.data();
    arguments[i].n_ids = prompts[i]->ids.size();
  }
  std::vector<cua_score> scores(prompts.size());
  for (cua_score &score : scores) score.struct_size = sizeof(cua_score);
  Outcome outcome;
  outcome.check(library_.score_prompts(engine_, arguments.data(),
                                       static_cast<uint32_t>(arguments.size()), scores.data(),
                                       &outcome.error));
  return scores;
}

cua_stats Engine::stats() const {
  cua_stats stats{};
  stats.struct_size = sizeof stats;
  Outcome outcome;
  outcome.check(library_.engine_stats(engine_, &stats, &outcome.error));
  return stats;
}

}  // namespace cua_server::scheduling
