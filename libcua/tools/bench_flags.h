// SPDX-License-Identifier: Apache-2.0
//
// The flags that every subcommand of cua-bench has.
#pragma once
#include <boost/program_options/options_description.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/usage_error.h"

namespace cua::tools {

struct BenchFlags {
  std::string model;
  std::string cuda_lib;      // empty: the library beside this program or where both are installed
  std::string device = "0";  // "cpu" or the number of a GPU
  uint32_t threads = 0;      // of the CPU library; 0: all cores
  std::string json;          // where the figures go as JSON; empty: nowhere

  bool is_cpu() const { return device == "cpu"; }
  int32_t ordinal() const;  // 0 for the CPU
};

// Parses `own` and the common flags. Gives false where --help was asked for, and shows it. Throws
// UsageError for what cannot be used.
bool parse_bench_flags(int argc, const char *const *argv,
                       boost::program_options::options_description own, BenchFlags &flags);

// Prompt lengths as in 64,218. Throws UsageError.
std::vector<uint32_t> parse_lengths(const std::string &tokens);
// Throws UsageError that names the flag.
void require_within(const char *name, uint32_t value, uint32_t least, uint32_t most);
// For commands that work through the module of the CUDA backend. Throws UsageError for flags that
// mean anything else.
void require_gpu(const BenchFlags &flags, const std::string &command);

}  // namespace cua::tools
