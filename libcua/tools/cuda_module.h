// SPDX-License-Identifier: Apache-2.0
//
// The module that looks inside the CUDA backend: cua-bench opens it when it is needed, and so
// starts without a CUDA runtime.
#pragma once
#include "tools/floor.h"
#include "tools/split.h"

namespace cua::tools {

inline constexpr char kCudaModule[] = "libcua_bench_cuda.so";

// What the module exports, by these names. Throws Error and what reading a checkpoint throws.
using SplitFunction = void(const SplitRequest &request, Split &split);
extern "C" SplitFunction cua_bench_split_cuda;
using FloorFunction = void(const FloorRequest &request, Floor &floor);
extern "C" FloorFunction cua_bench_floor_cuda;

// A function of the module, which stays open for the life of the process. `wanted_by` is the part
// of the command line that an error names. Throws std::runtime_error.
void *module_function(const char *name, const char *wanted_by);

template <class Function>
Function *module_function(const char *name, const char *wanted_by) {
  return reinterpret_cast<Function *>(module_function(name, wanted_by));
}

}  // namespace cua::tools
