// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a forward pass goes, operation by operation. Looks inside the library, and so
// is built with a backend: for the CPU in cua-bench itself, for CUDA in a module that it loads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cua::tools {

struct SplitRequest {
  std::string model;     // folder
  int32_t device = 0;    // CUDA ordinal
  uint32_t threads = 0;  // CPU; 0: all cores
  std::vector<uint32_t> lengths;
  uint32_t batch = 1, runs = 10;
  uint64_t seed = 1;  // of the random ids
};

// An operation in one pass. The least it must do: arithmetic of its definition, and every input
// read once and every output written once.
struct SplitOperation {
  std::string name;
  double calls = 0, seconds = 0, flops = 0, bytes = 0;
};

struct SplitPass {
  uint32_t tokens = 0;
  size_t launches = 0;  // kernels, copies and fills; 0: there are none
  std::vector<SplitOperation> operations;
};

struct Split {
  // What this card does at best: a large copy (bytes read and written), a large product of bf16
  // matrices; 0: not measured.
  double copy_bytes_per_s = 0, product_flops_per_s = 0;
  std::vector<SplitPass> passes;
};

Split split_cpu(const SplitRequest &request);

}  // namespace cua::tools
