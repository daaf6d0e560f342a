// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/usage_error.h"

namespace cua::tools {

// The subcommands of cua-bench. argv[0] is the command's own name.
void bench_forward(int argc, const char *const *argv);
void bench_tokenize(int argc, const char *const *argv);

}  // namespace cua::tools
