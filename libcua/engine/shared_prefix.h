// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cua::engine {

// A state can end at a multiple of this: the chunk length of the GDN recurrence.
inline constexpr size_t kPrefixMultiple = 64;

// Prompts that begin with the same tokens, whose state is worth a pass of its own.
struct SharedPrefix {
  size_t tokens = 0;            // a multiple of kPrefixMultiple, less than each of the prompts has
  std::vector<size_t> prompts;  // at least two, by their index
};

// The groups that save the most rows, beginning with the best; no prompt is in two.
//   starts  [prompts], tokens of each prompt whose state is there already
//   cost    of a group, in rows: it saves more
//   most    groups
//   room    tokens of all groups together
// Time grows with n log n comparisons of prompts, and with the square of at most 256.
std::vector<SharedPrefix> shared_prefixes(std::span<const std::vector<uint32_t>> prompts,
                                          std::span<const size_t> starts, size_t cost, size_t most,
                                          size_t room);

}  // namespace cua::engine
