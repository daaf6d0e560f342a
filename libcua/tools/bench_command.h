// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/json/value.hpp>

#include "tools/usage_error.h"

namespace cua::tools {

struct BenchFlags;
struct SplitRequest;

// Times the operations of a pass one by one and prints them as a table; gives the same as JSON.
boost::json::value bench_split(const BenchFlags &flags, const SplitRequest &request);

// The subcommands of cua-bench. argv[0] is the command's own name.
void bench_floor(int argc, const char *const *argv);
void bench_forward(int argc, const char *const *argv);
void bench_tokenize(int argc, const char *const *argv);

}  // namespace cua::tools
