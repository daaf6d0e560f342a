// SPDX-License-Identifier: Apache-2.0
#include "tools/module_pattern.h"

#include <pcre2.h>

#include "checkpoint/printable.h"
#include "error.h"

namespace cua::tools {
namespace {

constexpr uint32_t kMostSteps = 1'000'000;

}  // namespace

struct ModulePattern::Impl {
  std::string expression, field;
  pcre2_code *code = nullptr;
  ~Impl() { pcre2_code_free(code); }
};

ModulePattern::ModulePattern(const std::string &expression, const std::string &field)
    : impl_(new Impl{expression, field}) {
  int error = 0;
  size_t at = 0;
  impl_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                    PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C,
                    &error, &at, nullptr);
  if (impl_->code == nullptr) {
    char message[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR *>(message), sizeof message);
    throw Error(CUA_BAD_MODEL, field + ": \"" + checkpoint::printable(expression) +
                                   "\" is not a regular expression: " + message);
  }
}

ModulePattern::~ModulePattern() = default;
ModulePattern::ModulePattern(ModulePattern &&) noexcept = default;
ModulePattern &ModulePattern::operator=(ModulePattern &&) noexcept = default;

bool ModulePattern::matches(const std::string &module) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), kMostSteps);
  const int found = pcre2_match(impl_->code, reinterpret_cast<PCRE2_SPTR>(module.data()),
                                module.size(), 0, 0, data.get(), context.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
    throw Error(CUA_BAD_MODEL, impl_->field + ": \"" + checkpoint::printable(impl_->expression) +
                                   "\" takes too long to match " + module);
  }
  return found >= 0;
}

}  // namespace cua::tools
