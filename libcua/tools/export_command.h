// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>

namespace cua::tools {

// A command line that cannot be used.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The subcommands of cua-export. argv[0] is the command's own name. Return the exit status.
int export_synthetic(int argc, const char *const *argv);

}  // namespace cua::tools
