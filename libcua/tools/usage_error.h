// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>

namespace cua::tools {

// A command line that cannot be used.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cua::tools
