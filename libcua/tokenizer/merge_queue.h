// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cua::tokenizer {

// Candidate merges of one long piece, taken lowest rank first and leftmost first within a rank.
// One bucket a rank, as positions mostly arrive in ascending order: then push and pop cost O(1)
// (a heap of millions of candidates would miss the cache at every level).
class MergeQueue {
 public:
  explicit MergeQueue(uint32_t ranks) : bucket_of_(ranks, kNone) {}

  void push(uint32_t rank, uint32_t position);
  bool pop(uint32_t &rank, uint32_t &position);  // false: empty; then it may be used again

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Bucket {
    uint32_t rank;
    std::vector<uint32_t> ascending;  // positions, those before head are taken
    size_t head = 0;
    std::vector<uint32_t> late;  // min-heap of positions that came out of order

    bool empty() const { return head == ascending.size() && late.empty(); }
  };

  std::vector<uint32_t> bucket_of_;  // [ranks]
  std::vector<Bucket> buckets_;
  std::vector<uint32_t> active_;  // min-heap of the ranks whose bucket is not empty
};

}  // namespace cua::tokenizer
