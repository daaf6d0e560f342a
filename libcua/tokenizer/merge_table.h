// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cua::tokenizer {

// One merge of byte-pair encoding, as ids: left and right become result.
struct Merge {
  uint32_t left, right, result;
};

// From a pair of ids to its merge. The rank is the place in the list: the lowest goes first.
class MergeTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Found {
    uint32_t rank;  // kNone: this pair never merges
    uint32_t result;
  };

  // Of a pair listed twice the later rank counts, as in the `tokenizers` package.
  explicit MergeTable(const std::vector<Merge> &merges);

  Found find(uint32_t left, uint32_t right) const {
    for (size_t i = slot(left, right);; i = (i + 1) & mask_) {
      const Entry &entry = entries_[i];
      if (entry.rank == kNone) return {kNone, 0};
      if (entry.left == left && entry.right == right) return {entry.rank, entry.result};
    }
  }

  uint32_t ranks() const { return ranks_; }  // all ranks are below this

 private:
  struct Entry {
    uint32_t left = 0, right = 0;
    uint32_t rank = kNone;  // kNone: empty
    uint32_t result = 0;
  };

  size_t slot(uint32_t left, uint32_t right) const {
    const uint64_t key = static_cast<uint64_t>(left) << 32 | right;
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }

  std::vector<Entry> entries_;  // linear probing; a power of two, at most half full
  size_t mask_;
  unsigned shift_;  // 64 - log2(size)
  uint32_t ranks_;
};

}  // namespace cua::tokenizer
