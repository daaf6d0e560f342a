// SPDX-License-Identifier: Apache-2.0
//
// libcua's ABI without a model, for tests of the server: answers at once and predictably, or fails
// as the environment says.
//   tokens   one id for every four bytes of text, the first of the four
//   scores   option (sum of the ids) % n_options has logit 2, the others 0
//   CUA_FAKE_ABI            major.minor that cua_abi_version gives
//   CUA_FAKE_CREATE         code that cua_engine_create gives
//   CUA_FAKE_NO_TOKENIZER   the folder has none
//   CUA_FAKE_MODEL          the model id; none otherwise
//   CUA_FAKE_CALL_US        microseconds that a call of cua_score_prompts takes ...
//   CUA_FAKE_PROMPT_US      ... and those for each of its prompts
//   CUA_FAKE_LOAD_US        microseconds that cua_engine_create takes
//   CUA_FAKE_CALLS          file that gets a line for each call: the number of its prompts
//   CUA_FAKE_HOLD           file: while it exists, no call of cua_score_prompts goes on
//   CUA_FAKE_FAIL           prompts that contain CUA_FAKE_FAIL_TEXT (or all) give this code
//   CUA_FAKE_FAIL_AFTER     calls that succeed before any fails
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "cua.h"

struct cua_engine {
  std::mutex scoring;
  std::atomic<uint64_t> calls{0}, prompts{0}, tokens{0};
};

namespace {

long number(const char *variable, long otherwise = 0) {
  const char *const text = std::getenv(variable);
  return text != nullptr ? std::atol(text) : otherwise;
}

int32_t give(cua_error *error, int32_t code, const std::string &message) {
  if (error != nullptr) {
    error->code = code;
    std::snprintf(error->message, sizeof error->message, "%s", message.c_str());
  }
  return code;
}

std::vector<uint32_t> ids_of(const char *text, uint64_t length) {
  std::vector<uint32_t> ids;
  for (uint64_t i = 0; i < length; i += 4) ids.push_back(static_cast<unsigned char>(text[i]));
  return ids;
}

}  // namespace

extern "C" {

CUA_API uint32_t cua_abi_version(void) {
  const char *const text = std::getenv("CUA_FAKE_ABI");
  if (text == nullptr) return CUA_ABI_MAJOR << 16 | CUA_ABI_MINOR;
  char *end = nullptr;
  const unsigned long major = std::strtoul(text, &end, 10);
  return static_cast<uint32_t>(major << 16 | std::strtoul(end + 1, nullptr, 10));
}

CUA_API const char *cua_build_info(void) { return "{\"version\":\"0\",\"backend\":\"fake\"}"; }

CUA_API int32_t cua_engine_create(const cua_engine_options *options, cua_engine **engine,
                                  cua_error *error) {
  *engine = nullptr;
  std::this_thread::sleep_for(std::chrono::microseconds(number("CUA_FAKE_LOAD_US")));
  if (const long code = number("CUA_FAKE_CREATE")) {
    return give(error, static_cast<int32_t>(code), "the fake library refuses to open");
  }
  if (options->log != nullptr) {
    const char line[] = "a line of\nthe library";
    options->log(options->log_user, CUA_LOG_INFO, line, sizeof line - 1);
  }
  *engine = new cua_engine;
  return give(error, CUA_OK, "");
}

CUA_API void cua_engine_destroy(cua_engine *engine) { delete engine; }

CUA_API int32_t cua_engine_describe(const cua_engine *, char *json, uint64_t capacity,
                                    uint64_t *needed, cua_error *error) {
  const char *const model = std::getenv("CUA_FAKE_MODEL");
  const std::string text =
      std::string("{\"model\":") + (model != nullptr ? "\"" + std::string(model) + "\"" : "null") +
      ",\"tokenizer\":" + (std::getenv("CUA_FAKE_NO_TOKENIZER") != nullptr ? "false" : "true") +
      ",\"max_prompt_tokens\":16384,\"vocabulary\":256,\"backend\":\"fake\","
      "\"device\":\"none\"}";
  *needed = text.size();
  if (text.size() > capacity) return give(error, CUA_BUFFER_TOO_SMALL, "too small");
  std::memcpy(json, text.data(), text.size());
  return give(error, CUA_OK, "");
}

CUA_API int32_t cua_tokenize(const cua_engine *, const char *text, uint64_t length, uint32_t *ids,
                             uint64_t capacity, uint64_t *count, cua_error *error) {
  *count = (length + 3) / 4;
  if (*count > capacity) return give(error, CUA_BUFFER_TOO_SMALL, "too small");
  for (uint64_t i = 0; i < *count; ++i) ids[i] = static_cast<unsigned char>(text[4 * i]);
  return give(error, CUA_OK, "");
}

CUA_API int32_t cua_score_prompts(cua_engine *engine, const cua_prompt *prompts, uint32_t n,
                                  cua_score *scores, cua_error *error) {
  const std::lock_guard lock(engine->scoring);
  if (const char *const path = std::getenv("CUA_FAKE_CALLS")) {
    if (std::FILE *const file = std::fopen(path, "a")) {
      std::fprintf(file, "%u\n", n);
      std::fclose(file);
    }
  }
  if (const char *const path = std::getenv("CUA_FAKE_HOLD")) {
    while (access(path, F_OK) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const long pause = number("CUA_FAKE_CALL_US") + number("CUA_FAKE_PROMPT_US") * long{n};
  if (pause > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause));
  const long fail = number("CUA_FAKE_FAIL");
  if (fail != 0 && engine->calls >= static_cast<uint64_t>(number("CUA_FAKE_FAIL_AFTER"))) {
    const char *const text = std::getenv("CUA_FAKE_FAIL_TEXT");
    for (uint32_t i = 0; i < n; ++i) {
      std::vector<uint32_t> wanted =
          text != nullptr ? ids_of(text, std::strlen(text)) : std::vector<uint32_t>{};
      const uint32_t *const end = prompts[i].ids + prompts[i].n_ids;
      if (std::search(prompts[i].ids, end, wanted.begin(), wanted.end()) != end) {
        return give(error, static_cast<int32_t>(fail), "the fake library fails, a secret cause");
      }
    }
  }
  for (uint32_t i = 0; i < n; ++i) {
    uint64_t sum = 0;
    for (uint64_t j = 0; j < prompts[i].n_ids; ++j) sum += prompts[i].ids[j];
    const uint32_t options = prompts[i].n_options, best = static_cast<uint32_t>(sum % options);
    cua_score &score = scores[i];
    const uint32_t size = score.struct_size;
    score = {};
    score.struct_size = size;
    score.best = best;
    score.n_ids = prompts[i].n_ids;
    score.logits[best] = 2;
    const double total = std::exp(2.0) + (options - 1);
    for (uint32_t o = 0; o < options; ++o) {
      score.probabilities[o] = static_cast<float>((o == best ? std::exp(2.0) : 1.0) / total);
    }
    engine->tokens += prompts[i].n_ids;
  }
  ++engine->calls;
  engine->prompts += n;
  return give(error, CUA_OK, "");
}

CUA_API int32_t cua_set_graph_mode(cua_engine *, uint32_t, cua_error *error) {
  return give(error, CUA_OK, "");
}

#ifndef CUA_FAKE_PARTIAL  // a library that lacks a symbol
CUA_API int32_t cua_engine_stats(const cua_engine *engine, cua_stats *stats, cua_error *error) {
  const uint32_t size = stats->struct_size;
  *stats = {};
  stats->struct_size = size;
  stats->forwards = engine->calls;
  stats->prompts = engine->prompts;
  stats->tokens = engine->tokens;
  return give(error, CUA_OK, "");
}
#endif

}  // extern "C"
