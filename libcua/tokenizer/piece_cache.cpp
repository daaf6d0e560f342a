// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/piece_cache.h"

#include <algorithm>
#include <cstring>

namespace cua::tokenizer {

size_t PieceCache::slot_of(std::string_view piece) {
  uint64_t hash = piece.size();
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  };
  size_t i = 0;
  for (; i + 8 <= piece.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, piece.data() + i, 8);
    mix(word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, piece.data() + i, piece.size() - i);
  mix(rest);
  return static_cast<size_t>(hash % kSlots);
}

bool PieceCache::find(std::string_view piece, std::vector<uint32_t> &ids) const {
  if (piece.empty() || piece.size() > kMaxBytes) return false;
  const size_t at = slot_of(piece);
  const Slot &slot = slots_[at];
  const std::lock_guard lock(lock_of(at));
  if (std::string_view(slot.piece.data(), slot.length) != piece) return false;
  ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
  return true;
}

void PieceCache::store(std::string_view piece, const uint32_t *ids, size_t count) {
  if (piece.empty() || piece.size() > kMaxBytes || count > kMaxIds) return;
  const size_t at = slot_of(piece);
  Slot &slot = slots_[at];
  const std::lock_guard lock(lock_of(at));
  slot.length = static_cast<uint8_t>(piece.size());
  slot.count = static_cast<uint8_t>(count);
  std::copy(piece.begin(), piece.end(), slot.piece.begin());
  std::copy_n(ids, count, slot.ids.begin());
}

}  // namespace cua::tokenizer
