// SPDX-License-Identifier: Apache-2.0
//
// Calls at random, from several threads, with everything wrong that abi/cua.h allows to be wrong:
// sizes, tails, NULLs, lengths, ids, bytes that are no text. Every buffer ends (or nearly: it is
// aligned) where a page without access begins, and has no byte more than the call may touch. A call
// must be refused where something is wrong, must succeed where nothing is, must say so in its
// cua_error, and must write what is its own to write and nothing else.
//   random_calls LIBRARY IDS_MODEL TEXT_MODEL SECONDS [SEED [THREAD CALL]]
// Every call depends on the seed, the thread and its number alone; the last two repeat one.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "open_library.h"

namespace {

constexpr uint32_t kLargest = 65536;
constexpr unsigned char kCanary = 0xa5;
constexpr size_t kThreads = 4, kPrompts = 6;
constexpr uint32_t kMostTokens = 300;  // of the engines that all threads use

// ---- which call it was
// ------------------------------------------------------------------------------

uint64_t seed;
thread_local size_t this_thread;
thread_local uint64_t this_call;
std::array<struct sigaction, 65> former_actions;

[[noreturn]] void fail(const char *why, int line) {
  std::fprintf(stderr, "%s:%d: %s\nrepeat with: 0 %" PRIu64 " %zu %" PRIu64 "\n", __FILE__, line,
               why, seed, this_thread, this_call);
  std::_Exit(1);
}

#define MUST(condition)                           \
  do {                                            \
    if (!(condition)) fail(#condition, __LINE__); \
  } while (0)

void crashed(int signal) {
  std::fprintf(stderr, "signal %d\nrepeat with: 0 %" PRIu64 " %zu %" PRIu64 "\n", signal, seed,
               this_thread, this_call);
  sigaction(signal, &former_actions[static_cast<size_t>(signal)], nullptr);  // and again
}

// ---- chance
// -----------------------------------------------------------------------------------------

class Random {
 public:
  explicit Random(uint64_t state) : state_(state) {}
  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t n) { return next() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <class T, size_t N>
  T pick(const T (&from)[N]) {
    return from[below(N)];
  }
  uint32_t number() {
    const uint32_t odd[] = {0,    1,        2,          26,         27,        255,
                            4097, kLargest, 0x7fffffff, 0x80000000, 0xffffffff};
    return one_in(2) ? pick(odd) : static_cast<uint32_t>(next());
  }

 private:
  uint64_t state_;
};

// ---- memory
// -----------------------------------------------------------------------------------------

// A thread's buffers for one call.
class Fences {
 public:
  Fences() {
    for (std::byte *&slot : slots_) {
      void *const at = mmap(nullptr, kSlot + kGuard, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      REQUIRE(at != MAP_FAILED);
      slot = static_cast<std::byte *>(at);
      REQUIRE(mprotect(slot + kSlot, kGuard, PROT_NONE) == 0);
    }
  }
  ~Fences() {
    for (std::byte *const slot : slots_) munmap(slot, kSlot + kGuard);
  }
  void clear() { used_ = 0; }

  // `size` bytes of canaries, aligned.
  std::byte *take(size_t size, size_t alignment = 8) {
    MUST(used_ < slots_.size() && size <= kSlot);
    const size_t rounded = (size + alignment - 1) / alignment * alignment;
    std::byte *const at = slots_[used_++] + kSlot - rounded;
    std::memset(at, kCanary, rounded);
    return at;
  }
  const char *copy(std::string_view text) {
    std::byte *const at = take(text.size(), 1);
    if (!text.empty()) std::memcpy(at, text.data(), text.size());
    return reinterpret_cast<const char *>(at);
  }

 private:
  static constexpr size_t kSlot = kPrompts * kLargest, kGuard = 4096;
  std::array<std::byte *, 24> slots_;
  size_t used_ = 0;
};

bool untouched(const std::byte *from, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (from[i] != std::byte{kCanary}) return false;
  }
  return true;
}

uint32_t size_at(const std::byte *at) {
  uint32_t size;
  std::memcpy(&size, at, sizeof size);
  return size;
}

// ---- what is known
// ----------------------------------------------------------------------------------

struct Known {
  cua_engine *engine;
  bool text;
  std::string description;
  std::array<cua_score, 5> scores;  // of known_ids
};

Known engines[2];
std::array<std::vector<uint32_t>, 5> known_ids;
const std::string known_texts[] = {"A", "One of A, B and C: \xe2\x82\xac 12?",
                                   "<|im_start|>user\n\xf0\x9f\x98\x80",
                                   "e\xcc\x81\xcc\xa7 \xed\x95\x9c"};
std::array<std::vector<uint32_t>, std::size(known_texts)> known_tokens;
const char *ids_model, *text_model;
std::atomic<uint64_t> done[2];  // calls that were refused, and that were not

enum class Expected { success, refusal, either };

// ---- one call
// ---------------------------------------------------------------------------------------

class Call {
 public:
  Call(Fences &fences, uint64_t state) : fences_(fences), random_(state) { fences_.clear(); }

  void run() {
    switch (random_.below(64)) {
      case 0:
        return create_engine();
      case 1:
        return any_time();
      default:
        return on(engines[random_.below(2)]);
    }
  }

 private:
  void on(const Known &known) {
    switch (random_.below(8)) {
      case 0:
        return describe_engine(known);
      case 1:
        return graph_mode(known.engine);
      case 2:
        return statistics(known.engine);
      case 3:
      case 4:
        return tokens(known);
      default:
        return scores(known);
    }
  }

  void any_time() {
    MUST(abi_version() >> 16 == CUA_ABI_MAJOR);
    MUST(std::strstr(build_info(), "\"backend\"") != nullptr);
    destroy(nullptr);
  }

  void wrong() { expected_ = Expected::refusal; }
  bool spoil() { return random_.one_in(12); }

  // An error to pass, or NULL.
  cua_error *error() {
    if (random_.one_in(4)) return nullptr;
    error_valid_ = !random_.one_in(4);
    const uint32_t size =
        error_valid_ ? valid_size(sizeof(cua_error)) : invalid_size(sizeof(cua_error));
    error_ = fences_.take(error_valid_ ? size : 8);
    std::memcpy(error_, &size, sizeof size);
    return reinterpret_cast<cua_error *>(error_);
  }

  // A call has returned `code`.
  void check(int32_t code) {
    const int32_t refusals[] = {CUA_INVALID_ARGUMENT, CUA_BAD_MODEL, CUA_PROMPT_TOO_LONG,
                                CUA_UNSUPPORTED, CUA_BUFFER_TOO_SMALL};
    bool known = code == CUA_OK;
    for (const int32_t refusal : refusals) known = known || code == refusal;
    if (!known) std::fprintf(stderr, "code %d\n", code);
    MUST(known);
    if (code != CUA_OK && expected_ == Expected::success && error_ != nullptr && error_valid_) {
      std::fprintf(stderr, "%s\n", reinterpret_cast<cua_error *>(error_)->message);
    }
    MUST(expected_ != Expected::success || code == CUA_OK);
    MUST(expected_ != Expected::refusal || code != CUA_OK);
    ++done[code == CUA_OK];
    if (error_ == nullptr) return;
    if (!error_valid_) {
      MUST(untouched(error_ + 4, 4));
      return;
    }
    const auto *const error = reinterpret_cast<const cua_error *>(error_);
    MUST(error->code == code);
    MUST(std::memchr(error->message, 0, sizeof error->message) != nullptr);
    MUST((code == CUA_OK) == (error->message[0] == '\0'));
    MUST(untouched(error_ + sizeof *error, error->struct_size - sizeof *error));
  }

  uint32_t valid_size(uint32_t smallest) {
    switch (random_.below(4)) {
      case 0:
        return smallest;
      case 1:
        return smallest + static_cast<uint32_t>(random_.below(64));
      case 2:
        return kLargest - static_cast<uint32_t>(random_.below(2));
      default:
        return smallest + static_cast<uint32_t>(random_.below(kLargest - smallest));
    }
  }
  uint32_t invalid_size(uint32_t smallest) {
    switch (random_.below(4)) {
      case 0:
        return smallest - 1;
      case 1:
        return static_cast<uint32_t>(random_.below(smallest));
      case 2:
        return kLargest + 1;
      default:
        return kLargest + 1 + static_cast<uint32_t>(random_.below(0xffffffff - kLargest));
    }
  }

  // One input struct: what of `fields` fits, then zeros, or something that is not.
  template <class Struct>
  void write_input(std::byte *at, uint32_t size, Struct fields) {
    fields.struct_size = size;
    std::memset(at, 0, size);
    std::memcpy(at, &fields, std::min<size_t>(size, sizeof fields));
    if (size > sizeof fields && spoil()) {
      at[sizeof fields + random_.below(size - sizeof fields)] = std::byte{1};
      wrong();
    }
  }

  // Text for a pointer and a length, sometimes not UTF-8; and what a length may be without it.
  struct Text {
    const char *at;
    uint64_t length;
    std::string kept;
    bool utf8;
  };
  Text text(std::string good) {
    if (spoil()) {
      const std::string_view bad[] = {
          "\xff", "\xc0\xaf",         "\xe2\x82",         "\xed\xa0\x80",
          "\x80", "\xf4\x90\x80\x80", "\xf0\x80\x80\x80", "a\xcc"};
      good.insert(random_.below(good.size() + 1), bad[random_.below(std::size(bad))]);
      // Where it now stands inside a character, it may have been mended by chance, never made text.
      return {fences_.copy(good), good.size(), good, false};
    }
    if (spoil()) return {nullptr, 1 + (random_.next() >> random_.below(63)), {}, false};
    if (spoil()) return {fences_.copy(good), uint64_t{1} << 63 | random_.next(), {}, false};
    return {fences_.copy(good), good.size(), good, true};
  }
  std::string random_text() {
    const std::string_view pieces[] = {" ",
                                       "\n",
                                       "a",
                                       "Z",
                                       "7",
                                       "the",
                                       "'s",
                                       "\xc3\xa9",
                                       "\xcc\x81",
                                       "<|im_end|>",
                                       "\xe4\xb8\xad",
                                       "\xf0\x9f\x98\x80",
                                       "\xef\xbb\xbf",
                                       "\t",
                                       "!",
                                       "_"};
    std::string text;
    for (uint64_t n = random_.below(40) + 1; n > 0; --n)
      text += pieces[random_.below(std::size(pieces))];
    if (random_.one_in(8)) text.push_back('\0');
    return text;
  }

  // ---- the functions
  // --------------------------------------------------------------------------------

  void create_engine() {
    cua_engine_options fields{};
    const char *const missing[] = {"/nowhere", "/dev/null", "/proc/self/exe",
                                   "/",        ".",         "relative/\xc3\xa9"};
    const bool with_text = random_.one_in(16);
    std::string folder = with_text ? text_model : ids_model;
    if (random_.one_in(4)) {
      folder = random_.one_in(4) ? std::string(5000, 'x') : random_.pick(missing);
      wrong();
    }
    if (spoil()) {
      folder.insert(random_.below(folder.size()), 1, '\0');
      wrong();
    }
    const Text path = text(folder);
    if (!path.utf8) wrong();
    fields.model_dir = path.at;
    fields.model_dir_length = path.length;
    if (spoil()) {
      fields.model_dir_length = 0;
      wrong();
    }
    fields.device = static_cast<int32_t>(random_.number());
    fields.max_prompt_tokens = random_.number();
    fields.max_batch_tokens = random_.number();
    fields.graph_mode = spoil() ? random_.number() : 0;
    fields.graph_capacity = random_.number();
    if (random_.one_in(2)) {
      fields.log_user = this;
      fields.log = [](void *user, int32_t level, const char *message, uint64_t length) {
        MUST(user != nullptr && level >= CUA_LOG_ERROR && level <= CUA_LOG_DEBUG && length > 0);
        MUST(std::string_view(message, length).find('\0') == std::string_view::npos);
      };
    }
    fields.threads = spoil() ? random_.number() : static_cast<uint32_t>(random_.below(3));
    if (fields.threads > 64 && fields.threads <= 4096) fields.threads = 64;
    fields.precision = spoil() ? random_.number() : 0;
    bool tail_wrong = fields.threads > 4096 || fields.precision != 0;
    if (random_.one_in(4)) {
      const Text prefix = text(random_text());
      fields.prefix = prefix.at;
      fields.prefix_length = prefix.length;
      tail_wrong = tail_wrong || !prefix.utf8 || !with_text;
    }
    if (random_.one_in(4)) {
      const Text plans = text(random_text());
      fields.plans = plans.at;
      fields.plans_length = plans.length;
      tail_wrong = tail_wrong || !plans.utf8 || plans.kept.find('\0') != plans.kept.npos;
    }
    if (fields.graph_mode != 0) wrong();

    std::byte *options = nullptr;
    if (spoil()) {
      wrong();
    } else if (spoil()) {
      const uint32_t size = invalid_size(56);
      options = fences_.take(8);
      std::memcpy(options, &size, sizeof size);
      wrong();
    } else {
      uint32_t size = random_.one_in(2) ? sizeof fields : valid_size(56);
      if (size < sizeof fields) {  // without the later fields, the last of them cut in two
        fields.threads = fields.precision = 0;
        fields.prefix = fields.plans = nullptr;
        fields.prefix_length = fields.plans_length = 0;
        tail_wrong = false;
      }
      options = fences_.take(size);
      write_input(options, size, fields);
      if (tail_wrong) wrong();
    }
    cua_engine **const engine =
        spoil() ? nullptr : reinterpret_cast<cua_engine **>(fences_.take(sizeof(void *)));
    if (engine == nullptr) wrong();
    const int32_t code = create(reinterpret_cast<cua_engine_options *>(options), engine, error());
    if (engine != nullptr) MUST((code == CUA_OK) == (*engine != nullptr));
    check(code);
    if (code != CUA_OK) return;
    cua_engine *const made = *engine;
    cua_stats counters{};
    counters.struct_size = sizeof counters;
    MUST(stats(made, &counters, nullptr) == CUA_OK && counters.prompts == 0);
    destroy(made);
  }

  void describe_engine(const Known &known) {
    const bool without = spoil();
    output(
        known.description.data(), known.description.size(), 1,
        [&](void *at, uint64_t capacity, uint64_t *needed) {
          return describe(without ? nullptr : known.engine, static_cast<char *>(at), capacity,
                          needed, error());
        },
        without);
  }

  void tokens(const Known &known) {
    const size_t which = random_.below(std::size(known_texts));
    const bool without = spoil();
    const bool any = random_.one_in(3);
    const Text input = text(any ? random_text() : known_texts[which]);
    const bool refused = without || !known.text || !input.utf8;
    const auto call = [&](void *at, uint64_t capacity, uint64_t *count) {
      return tokenize(without ? nullptr : known.engine, input.at, input.length,
                      static_cast<uint32_t *>(at), capacity, count, error());
    };
    if (any && !refused) {  // never more ids than bytes after NFC, which adds at most a few
      expected_ = Expected::either;
      std::byte *const count = fences_.take(8);
      const uint64_t capacity = 3 * input.length;
      check(call(fences_.take(capacity * 4), capacity, reinterpret_cast<uint64_t *>(count)));
      MUST(*reinterpret_cast<uint64_t *>(count) <= capacity);
      return;
    }
    const std::vector<uint32_t> &ids = known_tokens[which];
    output(ids.data(), ids.size(), sizeof(uint32_t), call, refused);
  }

  // A function that fills at[capacity] and *count.
  template <class Function>
  void output(const void *content, uint64_t length, size_t element, Function function,
              bool refused) {
    if (refused) wrong();
    uint64_t capacity = random_.one_in(2) ? length : random_.below(2 * length);
    std::byte *at = nullptr;
    if (random_.one_in(8)) {
      capacity = random_.one_in(2) ? 0 : random_.next();
      if (capacity != 0) wrong();
    } else {
      at = fences_.take(capacity * element);
    }
    auto *const count = spoil() ? nullptr : reinterpret_cast<uint64_t *>(fences_.take(8));
    if (count == nullptr) wrong();
    if (capacity < length) wrong();
    const bool asked = expected_ == Expected::success ||
                       (!refused && count != nullptr && (at != nullptr || capacity == 0));
    const int32_t code = function(at, capacity, count);
    check(code);
    if (asked) {
      MUST(code == (capacity < length ? CUA_BUFFER_TOO_SMALL : CUA_OK));
      MUST(*count == length);
    }
    if (at == nullptr) return;
    if (code == CUA_OK) {
      MUST(std::memcmp(at, content, length * element) == 0);
      MUST(untouched(at + length * element, (capacity - length) * element));
    } else if (code == CUA_BUFFER_TOO_SMALL) {
      MUST(untouched(at, capacity * element));
    }
  }

  void graph_mode(cua_engine *engine) {
    const uint32_t mode = random_.one_in(2) ? 0 : random_.number();
    const bool without = spoil();
    if (without || mode != 0) wrong();
    check(set_graph_mode(without ? nullptr : engine, mode, error()));
  }

  void statistics(const cua_engine *engine) {
    const bool without = spoil();
    if (without) wrong();
    std::byte *at = nullptr;
    uint32_t size = 0;
    if (spoil()) {
      wrong();
    } else {
      const bool valid = !spoil();
      if (!valid) wrong();
      size = valid ? valid_size(sizeof(cua_stats)) : invalid_size(sizeof(cua_stats));
      at = fences_.take(valid ? size : 8);
      std::memcpy(at, &size, sizeof size);
    }
    const int32_t code =
        stats(without ? nullptr : engine, reinterpret_cast<cua_stats *>(at), error());
    check(code);
    if (at != nullptr) MUST(size_at(at) == size);
    if (code == CUA_OK) MUST(untouched(at + sizeof(cua_stats), size - sizeof(cua_stats)));
  }

  // Fields of a prompt; the index of the known one, or -1.
  int prompt(const Known &known, cua_prompt &fields) {
    fields = {};
    fields.n_options = spoil() ? random_.number() : 1 + static_cast<uint32_t>(random_.below(26));
    if (fields.n_options < 1 || fields.n_options > 26) wrong();
    if (random_.one_in(3)) {
      const Text input = text(random_text());
      fields.text = input.at;
      fields.text_length = input.length;
      if (!known.text || !input.utf8) wrong();
      return -1;
    }
    const size_t which = random_.below(known_ids.size());
    const std::vector<uint32_t> &ids = known_ids[which];
    std::byte *const at = fences_.take(ids.size() * sizeof(uint32_t), sizeof(uint32_t));
    std::memcpy(at, ids.data(), ids.size() * sizeof(uint32_t));
    fields.ids = reinterpret_cast<uint32_t *>(at);
    fields.n_ids = ids.size();
    if (spoil()) {
      const uint64_t odd[] = {
          0,          kMostTokens + 1,          uint64_t{1} << 32, uint64_t{1} << 62,
          UINT64_MAX, random_.next() | 1u << 31};
      fields.n_ids = random_.pick(odd);
      wrong();
    }
    if (spoil()) {
      fields.ids = nullptr;
      wrong();
    } else if (spoil()) {
      const uint32_t outside = (uint32_t{1} << (20 + random_.below(12))) + random_.number() % 1000;
      std::memcpy(at + 4 * random_.below(ids.size()), &outside, sizeof outside);
      wrong();
    } else if (spoil()) {  // of no concern where there are ids
      fields.text = random_.one_in(2) ? nullptr : fences_.copy("\xff");
      fields.text_length = random_.next();
    }
    return static_cast<int>(which);
  }

  void scores(const Known &known) {
    const auto n = static_cast<uint32_t>(random_.below(kPrompts + 1));
    const bool without = spoil();
    std::byte *prompts = nullptr, *results = nullptr;
    std::array<int, kPrompts> which{};
    uint32_t stride = 0;
    if (spoil()) {
      if (n > 0) wrong();
    } else if (spoil()) {
      if (n > 0) wrong();
      const uint32_t size = invalid_size(sizeof(cua_prompt));
      prompts = fences_.take(8);
      std::memcpy(prompts, &size, sizeof size);
    } else {
      const uint32_t size = valid_size(sizeof(cua_prompt));
      prompts = fences_.take(size_t{n} * size);
      for (uint32_t i = 0; i < n; ++i) {
        cua_prompt fields;
        which[i] = prompt(known, fields);
        write_input(prompts + size_t{i} * size, size, fields);
      }
      if (n > 1 && spoil()) {
        const uint32_t other = random_.number();
        if (other != size) wrong();
        std::memcpy(prompts + (1 + random_.below(n - 1)) * size, &other, sizeof other);
      }
    }
    if (spoil()) {
      if (n > 0) wrong();
    } else if (spoil()) {
      if (n > 0) wrong();
      const uint32_t size = invalid_size(sizeof(cua_score));
      results = fences_.take(8);
      std::memcpy(results, &size, sizeof size);
    } else {
      stride = valid_size(sizeof(cua_score));
      results = fences_.take(size_t{n} * stride);
      for (uint32_t i = 0; i < n; ++i)
        std::memcpy(results + size_t{i} * stride, &stride, sizeof stride);
      if (n > 1 && spoil()) {
        const uint32_t other = random_.number();
        if (other != stride) wrong();
        std::memcpy(results + (1 + random_.below(n - 1)) * stride, &other, sizeof other);
      }
    }
    if (without) wrong();
    const int32_t code =
        score(without ? nullptr : known.engine, reinterpret_cast<cua_prompt *>(prompts), n,
              reinterpret_cast<cua_score *>(results), error());
    check(code);
    if (code != CUA_OK) return;
    for (uint32_t i = 0; i < n; ++i) {
      const std::byte *const at = results + size_t{i} * stride;
      cua_score result;
      std::memcpy(&result, at, sizeof result);
      MUST(result.struct_size == stride);
      MUST(untouched(at + sizeof result, stride - sizeof result));
      if (which[i] < 0) continue;
      const cua_score &alone = known.scores[static_cast<size_t>(which[i])];
      MUST(result.n_ids == alone.n_ids);
      MUST(std::memcmp(result.logits, alone.logits, sizeof result.logits) == 0);
    }
  }

  Fences &fences_;
  Random random_;
  Expected expected_ = Expected::success;
  std::byte *error_ = nullptr;
  bool error_valid_ = false;
};

void one_call(Fences &fences, size_t thread, uint64_t call) {
  this_thread = thread;
  this_call = call;
  Call(fences, Random(seed ^ thread << 56 ^ call << 1).next()).run();
}

void learn(Known &known, const char *model, bool text) {
  cua_engine_options options{};
  options.struct_size = sizeof options;
  options.model_dir = model;
  options.model_dir_length = std::strlen(model);
  options.max_prompt_tokens = kMostTokens;
  options.max_batch_tokens = 64;
  options.threads = 2;
  REQUIRE(create(&options, &known.engine, nullptr) == CUA_OK);
  known.text = text;
  uint64_t length = 0;
  REQUIRE(describe(known.engine, nullptr, 0, &length, nullptr) == CUA_BUFFER_TOO_SMALL);
  known.description.resize(length);
  REQUIRE(describe(known.engine, known.description.data(), length, &length, nullptr) == CUA_OK);
  for (size_t i = 0; i < known_ids.size(); ++i) {
    cua_prompt prompt{};
    prompt.struct_size = sizeof prompt;
    prompt.n_options = 2;
    prompt.ids = known_ids[i].data();
    prompt.n_ids = known_ids[i].size();
    known.scores[i] = {};
    known.scores[i].struct_size = sizeof known.scores[i];
    REQUIRE(score(known.engine, &prompt, 1, &known.scores[i], nullptr) == CUA_OK);
  }
  for (size_t i = 0; text && i < std::size(known_texts); ++i) {
    known_tokens[i].resize(100);
    REQUIRE(tokenize(known.engine, known_texts[i].data(), known_texts[i].size(),
                     known_tokens[i].data(), 100, &length, nullptr) == CUA_OK);
    known_tokens[i].resize(length);
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 5 && argc != 6 && argc != 8) {
    std::fprintf(stderr,
                 "usage: random_calls LIBRARY IDS_MODEL TEXT_MODEL SECONDS [SEED [THREAD CALL]]\n");
    return 2;
  }
  open_library(argv[1], RTLD_NOW | RTLD_LOCAL);
  ids_model = argv[2];
  text_model = argv[3];
  seed = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 1;
  for (size_t i = 0; i < known_ids.size(); ++i) {
    known_ids[i].resize(1 + 11 * i);
    for (size_t t = 0; t < known_ids[i].size(); ++t)
      known_ids[i][t] = static_cast<uint32_t>(7 * t + 31 * i) % 512;
  }
  learn(engines[0], ids_model, false);
  learn(engines[1], text_model, true);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction action {};
    action.sa_handler = crashed;
    sigaction(signal, &action, &former_actions[static_cast<size_t>(signal)]);
  }
  if (argc == 8) {
    Fences fences;
    one_call(fences, std::strtoull(argv[6], nullptr, 10), std::strtoull(argv[7], nullptr, 10));
  } else {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[4]));
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([thread, end] {
        Fences fences;
        for (uint64_t call = 0; call < 1000 || std::chrono::steady_clock::now() < end; ++call) {
          one_call(fences, thread, call);
        }
      });
    }
    for (std::thread &thread : threads) thread.join();
  }
  for (const Known &known : engines) destroy(known.engine);
  std::printf("seed %" PRIu64 ": %" PRIu64 " calls refused, %" PRIu64 " not\n", seed,
              done[0].load(), done[1].load());
  return 0;
}
