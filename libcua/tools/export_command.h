// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/usage_error.h"

namespace cua::tools {

// The subcommands of cua-export. argv[0] is the command's own name. Return the exit status.
int export_info(int argc, const char *const *argv);
int export_merge(int argc, const char *const *argv);
int export_synthetic(int argc, const char *const *argv);
int export_verify(int argc, const char *const *argv);

}  // namespace cua::tools
