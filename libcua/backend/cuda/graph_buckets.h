// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace cua::backend::cuda {

// The row counts that graph mode bucket captures: dense where prompts are, so that padding costs
// little; a pass of more rows runs without a graph.
inline constexpr uint32_t kMostBucketRows = 2048;

// The least captured row count that holds `rows`, 1 to kMostBucketRows.
constexpr uint32_t graph_bucket(uint32_t rows) {
  const uint32_t step = rows <= 640 ? 16 : rows <= 1024 ? 32 : 64;
  return (rows + step - 1) / step * step;
}
// graph_bucket(rows) - rows is below this.
inline constexpr uint32_t kMostPadding = 64;

}  // namespace cua::backend::cuda
