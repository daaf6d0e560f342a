// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace cua::backend::cuda {

// Fewer rows than this are padded: below it the bits of a row were never measured to be its own.
inline constexpr uint32_t kLeastRows = 64;
// Rows that x and y have room for at least: a plan may find it faster to multiply more than asked.
inline constexpr uint32_t kRoomRows = 256;

// Plans are made for no more rows than this: beyond it the same algorithms serve.
inline constexpr uint32_t kMostPlannedRows = 2048;

// Row counts that share a plan: multiples of 64 to 512, then powers of two.
constexpr uint32_t row_bucket(uint32_t rows) {
  if (rows <= kLeastRows) return kLeastRows;
  if (rows <= 512) return (rows + 63) / 64 * 64;
  return std::min(std::bit_ceil(rows), kMostPlannedRows);
}

}  // namespace cua::backend::cuda
