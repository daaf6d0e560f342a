// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace cua::tools {

struct TuneRequest {
  std::string model;   // folder
  int32_t device = 0;  // CUDA ordinal
  std::string out;     // file of GEMM plans, written anew
};

struct Tune {
  std::string text;         // of the file
  size_t plans = 0;         // in it
  std::string passed_over;  // those that an engine would not take, a line each; empty: none
  size_t timed_anew = 0;    // that an engine with this model would still time
  double timed_s = 0;       // the passes of a load that times
  double from_file_s = 0;   // the same with the file
};

}  // namespace cua::tools
