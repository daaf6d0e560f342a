// SPDX-License-Identifier: Apache-2.0
//
// The C boundary: checks arguments, turns exceptions into codes, and nothing else.
#include <fenv.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "api/struct_size.h"
#include "api/utf8.h"
#include "cua.h"
#include "engine/engine.h"
#include "error.h"

struct cua_engine {
  explicit cua_engine(const cua::engine::EngineOptions &options) : engine(options) {}
  cua::engine::Engine engine;
};

namespace {

using cua::Error;
using cua::api::check_size;
using cua::api::read_input;
using cua::api::write_output;

// A message longer than its field is cut where a character ends.
void report(cua_error *error, int32_t code, std::string_view message) noexcept {
  if (error == nullptr || error->struct_size < cua::api::kErrorSize ||
      error->struct_size > cua::api::kLargestStruct) {
    return;
  }
  error->code = code;
  const size_t length = cua::api::cut(message, sizeof error->message - 1);
  if (length > 0) std::memcpy(error->message, message.data(), length);
  error->message[length] = '\0';
}

// The usual rounding without traps while the library computes, in its new threads too; then what
// the caller had, flags included.
class UsualFloatingPoint {
 public:
  UsualFloatingPoint() {
    fegetenv(&callers_);
    fesetenv(FE_DFL_ENV);
  }
  ~UsualFloatingPoint() { fesetenv(&callers_); }
  UsualFloatingPoint(const UsualFloatingPoint &) = delete;
  UsualFloatingPoint &operator=(const UsualFloatingPoint &) = delete;

 private:
  fenv_t callers_;
};

// Runs `body` and turns whatever it throws into a code and a message.
template <class Body>
int32_t guarded(cua_error *error, Body &&body) noexcept {
  const UsualFloatingPoint usual;
  try {
    body();
    report(error, CUA_OK, "");
    return CUA_OK;
  } catch (const Error &e) {
    report(error, e.code(), e.what());
    return e.code();
  } catch (const std::bad_alloc &) {
    report(error, CUA_OUT_OF_MEMORY, "out of host memory; use shorter prompts or smaller batches");
    return CUA_OUT_OF_MEMORY;
  } catch (const std::length_error &) {
    report(error, CUA_OUT_OF_MEMORY, "a size is beyond what memory can hold");
    return CUA_OUT_OF_MEMORY;
  } catch (const std::system_error &e) {
    if (e.code() != std::errc::resource_unavailable_try_again) {
      report(error, CUA_INTERNAL, e.what());
      return CUA_INTERNAL;
    }
    report(error, CUA_OUT_OF_MEMORY, "the system gives no more threads; lower options.threads");
    return CUA_OUT_OF_MEMORY;
  } catch (const std::exception &e) {
    report(error, CUA_INTERNAL, e.what());
    return CUA_INTERNAL;
  } catch (...) {
    report(error, CUA_INTERNAL, "unknown exception");
    return CUA_INTERNAL;
  }
}

void require(bool holds, const char *message) {
  if (!holds) throw Error(CUA_INVALID_ARGUMENT, message);
}

// pointer and length -> view; the pointer may be NULL with length 0.
std::string_view text_argument(const char *text, uint64_t length, const std::string &name) {
  if (text == nullptr && length != 0) {
    throw Error(CUA_INVALID_ARGUMENT, name + " is NULL with a length of " + std::to_string(length));
  }
  if (length > PTRDIFF_MAX) {
    throw Error(CUA_INVALID_ARGUMENT,
                name + "_length is " + std::to_string(length) + ", which no string can have");
  }
  const std::string_view view(text == nullptr ? "" : text, length);
  if (const auto offset = cua::api::invalid_utf8(view)) {
    throw Error(CUA_INVALID_ARGUMENT, name + " is not UTF-8 at byte " + std::to_string(*offset));
  }
  return view;
}

cua::engine::EngineOptions engine_options(const cua_engine_options *options) {
  require(options != nullptr, "options is NULL");
  const auto o = read_input<cua_engine_options>(options, options->struct_size,
                                                cua::api::kOptionsSize, "options");
  cua::engine::EngineOptions result;
  const std::string_view dir = text_argument(o.model_dir, o.model_dir_length, "options.model_dir");
  require(!dir.empty(), "options.model_dir is empty; give the folder of a merged checkpoint");
  require(dir.find('\0') == dir.npos, "options.model_dir holds a NUL byte");
  require(o.graph_mode <= CUA_GRAPH_BUCKET,
          "options.graph_mode is unknown; use CUA_GRAPH_OFF, _EXACT or _BUCKET");
  require(o.precision <= 1, "options.precision is unknown; use 0 (bf16 or fp32) or 1 (fp8)");
  require(o.threads <= 4096, "options.threads is over 4096");
  result.model_dir = std::filesystem::path(std::string(dir));
  result.max_prompt_tokens = o.max_prompt_tokens;
  result.max_batch_tokens = o.max_batch_tokens;
  result.precision = o.precision;
  const std::string_view prefix = text_argument(o.prefix, o.prefix_length, "options.prefix");
  if (!prefix.empty()) result.prefix = std::string(prefix);
  const std::string_view plans = text_argument(o.plans, o.plans_length, "options.plans");
  require(plans.find('\0') == plans.npos, "options.plans holds a NUL byte");
  result.executor.plans = std::string(plans);
  result.executor.device = o.device;
  result.executor.threads = o.threads;
  result.executor.graph_mode = o.graph_mode;
  result.executor.graph_capacity = o.graph_capacity;
  if (o.log != nullptr) {
    result.executor.log = [log = o.log, user = o.log_user](int32_t level, std::string_view text) {
      log(user, level, text.data(), text.size());
    };
  }
  return result;
}

// Element `index` of a caller's array whose stride is its first element's struct_size. Bytes: a
// stride need not keep the elements aligned.
template <class Struct>
auto *element(Struct *array, uint32_t index) {
  using Byte = std::conditional_t<std::is_const_v<Struct>, const std::byte, std::byte>;
  return reinterpret_cast<Byte *>(array) + size_t{index} * array->struct_size;
}

uint32_t size_of(const std::byte *at) {
  uint32_t struct_size;
  std::memcpy(&struct_size, at, sizeof struct_size);
  return struct_size;
}

cua::engine::Prompt prompt_argument(const cua_prompt *prompts, uint32_t index) {
  const std::string name = "prompts[" + std::to_string(index) + "]";
  const std::byte *const at = element(prompts, index);
  if (size_of(at) != prompts->struct_size) {
    throw Error(CUA_INVALID_ARGUMENT,
                name + ".struct_size differs from prompts[0].struct_size, the stride");
  }
  const auto p = read_input<cua_prompt>(at, prompts->struct_size, cua::api::kPromptSize, name);
  const auto fail = [&](const std::string &what) {
    throw Error(CUA_INVALID_ARGUMENT, name + what);
  };
  if (p.n_options < 1 || p.n_options > CUA_MAX_OPTIONS) {
    fail(".n_options is " + std::to_string(p.n_options) + "; 1 to 26 are allowed");
  }
  cua::engine::Prompt prompt;
  prompt.n_options = p.n_options;
  if (p.ids != nullptr) {
    if (p.n_ids == 0) fail(".n_ids is 0; a prompt has at least one token");
    if (p.n_ids > PTRDIFF_MAX / sizeof(uint32_t)) fail(".n_ids is beyond what memory can hold");
    prompt.ids = {p.ids, static_cast<size_t>(p.n_ids)};
  } else {
    if (p.n_ids != 0) fail(".ids is NULL with an n_ids of " + std::to_string(p.n_ids));
    if (p.text == nullptr) fail(" has neither ids nor text");
    prompt.text = text_argument(p.text, p.text_length, name + ".text");
    if (prompt.text.empty()) fail(".text_length is 0; a prompt has at least one token");
  }
  return prompt;
}

}  // namespace

extern "C" {

uint32_t cua_abi_version(void) { return CUA_ABI_MAJOR << 16 | CUA_ABI_MINOR; }

const char *cua_build_info(void) { return cua::engine::build_info(); }

int32_t cua_engine_create(const cua_engine_options *options, cua_engine **engine,
                          cua_error *error) {
  if (engine != nullptr) *engine = nullptr;
  return guarded(error, [&] {
    require(engine != nullptr, "engine is NULL");
    *engine = new cua_engine(engine_options(options));
  });
}

void cua_engine_destroy(cua_engine *engine) { delete engine; }

int32_t cua_engine_describe(const cua_engine *engine, char *json, uint64_t capacity,
                            uint64_t *needed, cua_error *error) {
  return guarded(error, [&] {
    require(engine != nullptr, "engine is NULL");
    require(needed != nullptr, "needed is NULL");
    require(json != nullptr || capacity == 0, "json is NULL with a capacity");
    const std::string text = engine->engine.describe();
    *needed = text.size();
    if (text.size() > capacity) {
      throw Error(CUA_BUFFER_TOO_SMALL, "json needs a capacity of " + std::to_string(text.size()));
    }
    std::memcpy(json, text.data(), text.size());
  });
}

int32_t cua_tokenize(const cua_engine *engine, const char *text, uint64_t length, uint32_t *ids,
                     uint64_t capacity, uint64_t *count, cua_error *error) {
  return guarded(error, [&] {
    require(engine != nullptr, "engine is NULL");
    require(count != nullptr, "count is NULL");
    require(ids != nullptr || capacity == 0, "ids is NULL with a capacity");
    const std::vector<uint32_t> result =
        engine->engine.tokenize(text_argument(text, length, "text"));
    *count = result.size();
    if (result.size() > capacity) {
      throw Error(CUA_BUFFER_TOO_SMALL, "ids needs a capacity of " + std::to_string(result.size()));
    }
    std::copy(result.begin(), result.end(), ids);
  });
}

int32_t cua_score_prompts(cua_engine *engine, const cua_prompt *prompts, uint32_t n,
                          cua_score *scores, cua_error *error) {
  return guarded(error, [&] {
    require(engine != nullptr, "engine is NULL");
    if (n == 0) return;
    require(prompts != nullptr, "prompts is NULL");
    require(scores != nullptr, "scores is NULL");
    check_size(prompts->struct_size, cua::api::kPromptSize, "prompts[0]");
    const uint32_t stride = scores->struct_size;
    check_size(stride, cua::api::kScoreSize, "scores[0]");
    std::vector<cua::engine::Prompt> arguments;
    arguments.reserve(n);
    for (uint32_t i = 0; i < n; ++i) {
      arguments.push_back(prompt_argument(prompts, i));
      if (size_of(element(scores, i)) != stride) {
        throw Error(CUA_INVALID_ARGUMENT,
                    "scores[" + std::to_string(i) +
                        "].struct_size differs from scores[0].struct_size, the stride");
      }
    }
    const std::vector<cua::engine::Score> results = engine->engine.score(arguments);
    for (uint32_t i = 0; i < n; ++i) {
      const cua::engine::Score &from = results[i];
      cua_score to{};
      to.best = from.best;
      to.n_ids = from.n_ids;
      to.flags = from.flags;
      std::copy(from.logits.begin(), from.logits.end(), to.logits);
      std::copy(from.probabilities.begin(), from.probabilities.end(), to.probabilities);
      write_output(element(scores, i), stride, to);
    }
  });
}

int32_t cua_set_graph_mode(cua_engine *engine, uint32_t mode, cua_error *error) {
  return guarded(error, [&] {
    require(engine != nullptr, "engine is NULL");
    require(mode <= CUA_GRAPH_BUCKET,
            "mode is unknown; use CUA_GRAPH_OFF, CUA_GRAPH_EXACT or CUA_GRAPH_BUCKET");
    engine->engine.set_graph_mode(mode);
  });
}

int32_t cua_engine_stats(const cua_engine *engine, cua_stats *stats, cua_error *error) {
  return guarded(error, [&] {
    require(engine != nullptr, "engine is NULL");
    require(stats != nullptr, "stats is NULL");
    check_size(stats->struct_size, cua::api::kStatsSize, "stats");
    const cua::engine::EngineStats from = engine->engine.stats();
    cua_stats to{};
    to.forwards = from.forwards;
    to.prompts = from.prompts;
    to.tokens = from.tokens;
    to.captures = from.executor.captures;
    to.replays = from.executor.replays;
    to.evictions = from.executor.evictions;
    to.fallbacks = from.executor.fallbacks;
    to.scratch_bytes = from.executor.scratch_bytes;
    to.device_bytes = from.executor.device_bytes;
    write_output(stats, stats->struct_size, to);
  });
}

}  // extern "C"
