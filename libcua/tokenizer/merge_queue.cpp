// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/merge_queue.h"

#include <algorithm>
#include <functional>

namespace cua::tokenizer {

void MergeQueue::push(uint32_t rank, uint32_t position) {
  uint32_t &index = bucket_of_[rank];
  if (index == kNone) {
    index = static_cast<uint32_t>(buckets_.size());
    buckets_.push_back({rank, {}, 0, {}});
  }
  Bucket &bucket = buckets_[index];
  if (bucket.empty()) {
    active_.push_back(rank);
    std::push_heap(active_.begin(), active_.end(), std::greater<>());
  }
  if (bucket.ascending.empty() || bucket.ascending.back() <= position) {
    bucket.ascending.push_back(position);
  } else {
    bucket.late.push_back(position);
    std::push_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
  }
}

bool MergeQueue::pop(uint32_t &rank, uint32_t &position) {
  if (active_.empty()) {
    for (const Bucket &bucket : buckets_) bucket_of_[bucket.rank] = kNone;
    buckets_.clear();
    return false;
  }
  rank = active_.front();
  Bucket &bucket = buckets_[bucket_of_[rank]];
  const bool in_order = bucket.head < bucket.ascending.size();
  if (!bucket.late.empty() && (!in_order || bucket.late.front() < bucket.ascending[bucket.head])) {
    position = bucket.late.front();
    std::pop_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
    bucket.late.pop_back();
  } else {
    position = bucket.ascending[bucket.head++];
  }
  if (bucket.empty()) {
    bucket.ascending.clear();
    bucket.head = 0;
    std::pop_heap(active_.begin(), active_.end(), std::greater<>());
    active_.pop_back();
  }
  return true;
}

}  // namespace cua::tokenizer
