// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <pcre2.h>

#include <new>

#include "error.h"
#include "tokenizer/split_pattern.h"

namespace cua::tokenizer {
namespace {

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256];
  return pcre2_get_error_message(code, text, sizeof text) < 0
             ? "PCRE2 error " + std::to_string(code)
             : reinterpret_cast<const char *>(text);
}

}  // namespace

struct PreTokenizer::Compiled {
  pcre2_code *code = nullptr;
  pcre2_match_context *context = nullptr;

  ~Compiled() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

PreTokenizer::PreTokenizer(std::string_view pattern, const std::string &name)
    : compiled_(std::make_unique<Compiled>()) {
  std::string translated;
  try {
    translated = pcre2_pattern(pattern);
  } catch (const Error &error) {
    throw Error(error.code(),
                name + " has " + error.what() + ", which this tokenizer does not take");
  }
  int code;
  PCRE2_SIZE offset;
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &offset, nullptr);
  if (!compiled_->code) {
    throw Error(CUA_BAD_MODEL, name + " is not a regular expression: " + pcre2_message(code));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled_->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty) throw Error(CUA_UNSUPPORTED, name + " may match the empty string");
  // Where the machine forbids writable code pages, PCRE2 interprets instead: slower, same matches.
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
  compiled_->context = pcre2_match_context_create(nullptr);
  if (!compiled_->context) throw std::bad_alloc();
  // A long text is no reason to give up.
  pcre2_set_match_limit(compiled_->context, UINT32_MAX);
  pcre2_set_depth_limit(compiled_->context, UINT32_MAX);
}

PreTokenizer::~PreTokenizer() = default;

struct PreTokenizer::Cutter::State {
  const Compiled &compiled;
  std::string_view text;
  pcre2_match_data *data;
  size_t done = 0;         // what lies before has been handed out
  size_t match_begin = 0;  // the match that comes next, if match_end is behind done
  size_t match_end = 0;

  ~State() { pcre2_match_data_free(data); }
};

PreTokenizer::Cutter::Cutter(const PreTokenizer &pre_tokenizer, std::string_view text)
    : state_(new State{*pre_tokenizer.compiled_, text, pcre2_match_data_create(1, nullptr)}) {
  if (!state_->data) throw std::bad_alloc();
}

PreTokenizer::Cutter::~Cutter() = default;

bool PreTokenizer::Cutter::next(std::string_view &piece) {
  State &state = *state_;
  if (state.done == state.text.size()) return false;
  if (state.match_end <= state.done) {
    const auto search = [&](uint32_t options) {
      return pcre2_match(state.compiled.code, reinterpret_cast<PCRE2_SPTR>(state.text.data()),
                         state.text.size(), state.done, options, state.data,
                         state.compiled.context);
    };
    int code = search(PCRE2_NO_UTF_CHECK);
    // The interpreter keeps its state in the heap.
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) code = search(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (code == PCRE2_ERROR_NOMATCH) {
      state.match_begin = state.match_end = state.text.size();
    } else if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAPLIMIT) {
      throw std::bad_alloc();
    } else if (code < 0) {
      throw Error(CUA_INTERNAL, "the tokenizer's Split regex failed: " + pcre2_message(code));
    } else {
      const PCRE2_SIZE *match = pcre2_get_ovector_pointer(state.data);
      state.match_begin = match[0];
      state.match_end = match[1];
    }
  }
  const size_t end = state.done < state.match_begin ? state.match_begin : state.match_end;
  piece = state.text.substr(state.done, end - state.done);
  state.done = end;
  return true;
}

}  // namespace cua::tokenizer
