// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "engine/shared_prefix.h"
#include "error.h"

namespace cua::engine {

namespace {

constexpr uint32_t kDefaultPromptTokens = 16384;
constexpr uint32_t kFirstLetter = 32;  // id of "A" where there is no tokenizer to ask
constexpr uint32_t kPrefixState = 1;   // number of the state after the option `prefix`
constexpr size_t kMostShared = 4;      // states that the prompts of one call share

std::array<uint32_t, kLetters> letter_ids(const tokenizer::Tokenizer *tokenizer,
                                          uint32_t vocabulary) {
  std::array<uint32_t, kLetters> letters;
  for (uint32_t i = 0; i < kLetters; ++i) letters[i] = kFirstLetter + i;
  if (tokenizer != nullptr) {
    letters = tokenizer->letters();
    if (tokenizer->vocabulary() > vocabulary) {
      throw Error(CUA_BAD_MODEL,
                  "tokenizer.json has ids up to " + std::to_string(tokenizer->vocabulary() - 1) +
                      " but the model's vocabulary has " + std::to_string(vocabulary) +
                      " rows: the tokenizer belongs to another model");
    }
  }
  const uint32_t largest = *std::max_element(letters.begin(), letters.end());
  if (largest >= vocabulary) {
    throw Error(CUA_BAD_MODEL, "the vocabulary has " + std::to_string(vocabulary) +
                                   " rows, but the letters A to Z need ids up to " +
                                   std::to_string(largest));
  }
  return letters;
}

}  // namespace

void read_out(uint32_t n_options, Score &score) {
  const auto first = score.logits.begin(), last = first + n_options;
  const auto best = std::max_element(first, last);
  score.best = static_cast<uint32_t>(best - first);
  std::array<double, kLetters> weights{};
  double total = 0;
  for (uint32_t i = 0; i < n_options; ++i) {
    weights[i] = std::exp(static_cast<double>(score.logits[i]) - static_cast<double>(*best));
    total += weights[i];
  }
  score.probabilities.fill(0);
  for (uint32_t i = 0; i < n_options; ++i) {
    score.probabilities[i] = static_cast<float>(weights[i] / total);
  }
}

Engine::Engine(const EngineOptions &options) : checkpoint_(options.model_dir) {
  if (options.precision != 0) {
    throw Error(CUA_UNSUPPORTED, "precision 1 (fp8) does not exist yet; use 0");
  }
  if (const auto path = checkpoint_.tokenizer_json()) {
    tokenizer_ = std::make_unique<tokenizer::Tokenizer>(*path);
  }
  const auto letters = letter_ids(tokenizer_.get(), checkpoint_.config().vocabulary);
  max_prompt_tokens_ =
      options.max_prompt_tokens != 0 ? options.max_prompt_tokens : kDefaultPromptTokens;
  executor_ = make_executor(checkpoint_, letters, max_prompt_tokens_, options.executor);
  max_batch_tokens_ =
      options.max_batch_tokens != 0 ? options.max_batch_tokens : executor_->max_batch_tokens();
  if (options.prefix) {
    if (!tokenizer_) {
      throw Error(CUA_UNSUPPORTED,
                  "prefix: this model folder has no tokenizer.json, without which text cannot be "
                  "tokenised; copy it from the base model, or leave prefix out");
    }
    std::vector<uint32_t> ids = tokenizer_->encode(*options.prefix);
    // The tokens near the end of the text may join with what follows; a prompt is compared token by
    // token, so that costs a hit at most, never a wrong answer.
    ids.resize(ids.size() / kPrefixMultiple * kPrefixMultiple);
    if (ids.empty() || ids.size() >= max_prompt_tokens_) {
      if (options.executor.log) {
        options.executor.log(CUA_LOG_WARNING, "prefix: not kept, its multiple of 64 tokens is " +
                                                  std::to_string(ids.size()) +
                                                  "; 64 to less than max_prompt_tokens are useful");
      }
    } else {
      executor_->keep_state(kPrefixState, ids, 0);
      prefix_ = std::move(ids);
    }
  }
}

std::string Engine::describe() const {
  boost::json::object json;
  const auto &model = checkpoint_.model_id();
  json["model"] = model ? boost::json::value(*model) : boost::json::value(nullptr);
  json["tokenizer"] = tokenizer_ != nullptr;
  json["max_prompt_tokens"] = max_prompt_tokens_;
  json["max_batch_tokens"] = max_batch_tokens_;
  json["vocabulary"] = checkpoint_.config().vocabulary;
  json["backend"] = backend_name();
  json["device"] = executor_->device();
  json["prefix_tokens"] = prefix_.size();
  json["batch_invariant"] = executor_->batch_invariant();
  return boost::json::serialize(json);
}

std::vector<uint32_t> Engine::tokenize(std::string_view text) const {
  if (!tokenizer_) {
    throw Error(CUA_UNSUPPORTED,
                "this model folder has no tokenizer.json; add it, or pass token ids");
  }
  return tokenizer_->encode(text);
}

std::vector<uint32_t> Engine::check(const Prompt &prompt) const {
  const auto check_length = [&](size_t tokens) {
    if (tokens <= max_prompt_tokens_) return;
    throw Error(CUA_PROMPT_TOO_LONG, std::to_string(tokens) + " tokens, the limit is " +
                                         std::to_string(max_prompt_tokens_));
  };
  std::vector<uint32_t> ids;
  if (prompt.ids.empty()) {
    ids = tokenize(prompt.text);
    if (ids.empty()) throw Error(CUA_INVALID_ARGUMENT, "the text is empty");
    check_length(ids.size());
  } else {
    check_length(prompt.ids.size());  // before any of them is read
    ids.assign(prompt.ids.begin(), prompt.ids.end());
  }
  const uint32_t vocabulary = checkpoint_.config().vocabulary;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < vocabulary) continue;
    throw Error(CUA_INVALID_ARGUMENT, "ids[" + std::to_string(i) + "] is " +
                                          std::to_string(ids[i]) + ", the vocabulary has " +
                                          std::to_string(vocabulary));
  }
  return ids;
}

// After the state of the option `prefix`, or at the beginning.
Engine::Start Engine::start_of(std::span<const uint32_t> ids) const {
  const bool starts = !prefix_.empty() && ids.size() > prefix_.size() &&
                      std::equal(prefix_.begin(), prefix_.end(), ids.begin());
  return starts ? Start{kPrefixState, prefix_.size()} : Start{};
}

// The same, or after what prompts of this call share, whose state is computed here.
std::vector<Engine::Start> Engine::starts_of(std::span<const std::vector<uint32_t>> ids) {
  std::vector<Start> starts;
  std::vector<size_t> tokens;
  for (const std::vector<uint32_t> &prompt : ids) {
    starts.push_back(start_of(prompt));
    tokens.push_back(starts.back().tokens);
  }
  if (ids.size() < 2) return starts;
  uint32_t number = kPrefixState;
  for (const SharedPrefix &shared :
       shared_prefixes(ids, tokens, executor_->pass_cost(), kMostShared, max_prompt_tokens_)) {
    const size_t first = shared.prompts.front();
    const auto begin = ids[first].begin();
    const Start from = starts[first];
    const std::vector<uint32_t> rest(begin + static_cast<ptrdiff_t>(from.tokens),
                                     begin + static_cast<ptrdiff_t>(shared.tokens));
    if (!keep_state(++number, rest, from)) break;
    for (const size_t prompt : shared.prompts) starts[prompt] = {number, shared.tokens};
  }
  return starts;
}

// Whether there was memory for it; without, its prompts are computed as if they shared nothing.
bool Engine::keep_state(uint32_t number, std::span<const uint32_t> ids, Start from) {
  try {
    executor_->keep_state(number, ids, from.state);
  } catch (const Error &error) {
    if (error.code() != CUA_OUT_OF_MEMORY) throw;
    return false;
  }
  forwards_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::vector<Score> Engine::score(std::span<const Prompt> prompts) {
  std::vector<std::vector<uint32_t>> ids(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    try {
      ids[i] = check(prompts[i]);
    } catch (const Error &error) {
      throw Error(error.code(), "prompts[" + std::to_string(i) + "]: " + error.what());
    }
  }
  const std::lock_guard lock(scoring_);
  if (failed_) throw Error(CUA_DEVICE_FAILED, "the device failed earlier; make a new engine");
  try {
    return score_passes(prompts, ids);
  } catch (const Error &error) {
    if (error.code() == CUA_DEVICE_FAILED) failed_ = true;
    throw;
  }
}

std::vector<Score> Engine::score_passes(std::span<const Prompt> prompts,
                                        std::span<const std::vector<uint32_t>> ids) {
  std::vector<Score> scores(prompts.size());
  const std::vector<Start> starts = starts_of(ids);
  const auto rows_of = [&](size_t i) { return ids[i].size() - starts[i].tokens; };
  for (size_t first = 0; first < prompts.size();) {
    size_t last = first, rows = 0;
    do {
      rows += rows_of(last);
      ++last;
    } while (last < prompts.size() && rows + rows_of(last) <= max_batch_tokens_);
    const size_t count = last - first;
    score_pass(prompts.subspan(first, count), ids.subspan(first, count),
               std::span(starts).subspan(first, count), std::span(scores).subspan(first, count));
    for (size_t i = first; i < last; ++i) {
      const auto &logits = scores[i].logits;
      if (std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
        continue;
      }
      throw Error(CUA_NOT_FINITE, "prompts[" + std::to_string(i) +
                                      "]: the model gave a logit that is not a finite number");
    }
    first = last;
  }
  return scores;
}

void Engine::score_pass(std::span<const Prompt> prompts, std::span<const std::vector<uint32_t>> ids,
                        std::span<const Start> starts, std::span<Score> scores) {
  std::vector<uint32_t> rows, cu_seqlens{0}, states;
  uint64_t tokens = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    rows.insert(rows.end(), ids[i].begin() + static_cast<ptrdiff_t>(starts[i].tokens),
                ids[i].end());
    cu_seqlens.push_back(static_cast<uint32_t>(rows.size()));
    states.push_back(starts[i].state);
    tokens += ids[i].size();
  }
  std::vector<float> logits(prompts.size() * kLetters);
  uint32_t flags = prompts.size() > 1 ? uint32_t{CUA_SCORE_BATCHED} : 0u;
  flags |= executor_->score({rows, cu_seqlens, states}, logits.data());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Score &score = scores[i];
    std::copy_n(logits.begin() + static_cast<ptrdiff_t>(i * kLetters), kLetters,
                score.logits.begin());
    score.n_ids = ids[i].size();
    score.flags = flags;
    read_out(prompts[i].n_options, score);
  }
  forwards_.fetch_add(1, std::memory_order_relaxed);
  prompts_.fetch_add(prompts.size(), std::memory_order_relaxed);
  tokens_.fetch_add(tokens, std::memory_order_relaxed);
}

void Engine::set_graph_mode(uint32_t mode) {
  const std::lock_guard lock(scoring_);
  if (failed_) throw Error(CUA_DEVICE_FAILED, "the device failed earlier; make a new engine");
  executor_->set_graph_mode(mode);
}

EngineStats Engine::stats() const {
  EngineStats stats;
  stats.forwards = forwards_.load(std::memory_order_relaxed);
  stats.prompts = prompts_.load(std::memory_order_relaxed);
  stats.tokens = tokens_.load(std::memory_order_relaxed);
  stats.executor = executor_->stats();
  return stats;
}

}  // namespace cua::engine
