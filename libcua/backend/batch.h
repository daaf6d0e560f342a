// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace cua::backend {

// Sequences packed row after row into one forward pass. Rows are what the pass computes: where a
// sequence starts from a prefix state, its rows begin after the prefix.
template <class State>
struct Batch {
  std::span<const uint32_t> ids;           // [T], each below the vocabulary size
  std::span<const uint32_t> cu_seqlens;    // [B + 1], 0 first, T last, strictly increasing
  std::span<const State *const> prefixes;  // [B], nullptr: from position 0; or empty: all from 0
  State *capture = nullptr;  // where the state after the last row of the only sequence
                             // goes; nullptr: nowhere
  size_t padding = 0;        // rows after the last sequence's last one, part of it for every
                             // operation, but never read out; no capture then

  size_t rows() const { return ids.size(); }
  size_t sequences() const { return cu_seqlens.size() - 1; }
  size_t begin(size_t sequence) const { return cu_seqlens[sequence]; }
  size_t end(size_t sequence) const { return cu_seqlens[sequence + 1]; }
  // The row that is read out.
  size_t last(size_t sequence) const {
    return end(sequence) - 1 - (sequence + 1 == sequences() ? padding : 0);
  }
  const State *prefix(size_t sequence) const {
    return prefixes.empty() ? nullptr : prefixes[sequence];
  }
};

// Which rows an operation takes: every row, [T, ...], or each sequence's last one, [B, ...].
enum class Rows : uint8_t { all, last };

}  // namespace cua::backend
