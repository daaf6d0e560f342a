// SPDX-License-Identifier: Apache-2.0
//
// Files of GEMM plans: what `cua-bench tune` writes and an engine reads. docs/performance.md has
// the format. Pure functions of text; nothing here knows CUDA.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cua::backend::cuda {

// What plans depend on, beside the shapes.
struct GemmPlanTarget {
  std::string gpu;          // as the driver calls it
  uint32_t capability = 0;  // 10 times major plus minor
  uint64_t cublaslt = 0;    // cublasLtGetVersion()
};

// An algorithm as cuBLASLt configures it. What would split a sum, SPLITK_NUM and the reduction
// scheme, cannot be said: they are 1 and none.
struct GemmAlgorithm {
  uint32_t id = 0, tile = 0, stages = 0, cluster = 0, swizzle = 0, custom = 0, inner = 0;
  bool operator==(const GemmAlgorithm &) const = default;
};

// y [rows, n] = x [rows, k] w [n, k]^T for the row counts of one bucket, with cuBLASLt's default
// epilogue.
struct GemmPlan {
  uint32_t n = 0, k = 0;
  uint32_t bucket = 0;  // see row_bucket()
  uint32_t rows = 0;    // that are multiplied: the bucket or more, as far as there is room
  GemmAlgorithm algorithm;
  bool operator==(const GemmPlan &) const = default;
};

struct GemmPlanFile {
  GemmPlanTarget target;
  std::vector<GemmPlan> plans;
};

// All throw Error INVALID_ARGUMENT with the file's name, the line and a reason.
GemmPlanFile parse_gemm_plans(std::string_view text, const std::string &file);
GemmPlanFile read_gemm_plans(const std::filesystem::path &path);
// Where the plans were made for something else than what is here.
void require_target(const GemmPlanFile &plans, const GemmPlanTarget &here, const std::string &file);

std::string format_gemm_plans(const GemmPlanFile &plans);

}  // namespace cua::backend::cuda
