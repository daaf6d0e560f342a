// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/merge_table.h"

#include <algorithm>
#include <bit>

namespace cua::tokenizer {

MergeTable::MergeTable(const std::vector<Merge> &merges)
    : entries_(std::bit_ceil(std::max<size_t>(2 * merges.size(), 2))),
      mask_(entries_.size() - 1),
      shift_(64 - static_cast<unsigned>(std::countr_zero(entries_.size()))),
      ranks_(static_cast<uint32_t>(merges.size())) {
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    const Merge &merge = merges[rank];
    size_t i = slot(merge.left, merge.right);
    while (entries_[i].rank != kNone &&
           (entries_[i].left != merge.left || entries_[i].right != merge.right)) {
      i = (i + 1) & mask_;
    }
    entries_[i] = {merge.left, merge.right, rank, merge.result};
  }
}

}  // namespace cua::tokenizer
