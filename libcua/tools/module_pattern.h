// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>

namespace cua::tools {

// A regular expression of an adapter_config.json, to match whole names of modules. PCRE2 takes what
// Python's re means by those; its work is bounded, so that no expression can hang a merge.
class ModulePattern {
 public:
  // `field` names its source. Throws Error BAD_MODEL for what is no expression.
  ModulePattern(const std::string &expression, const std::string &field);
  ~ModulePattern();
  ModulePattern(ModulePattern &&) noexcept;
  ModulePattern &operator=(ModulePattern &&) noexcept;
  // Throws Error BAD_MODEL where that takes too long.
  bool matches(const std::string &module) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cua::tools
