// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace cua::tokenizer {

// Remembers the ids of short pieces. Bounded by construction: a fixed number of slots of one cache
// line each, the newest piece of a slot wins, and nothing is allocated after construction. Thread
// safe.
class PieceCache {
 public:
  static constexpr size_t kSlots = 32768;  // 2 MiB
  static constexpr size_t kMaxBytes = 30;  // longer pieces are not kept
  static constexpr size_t kMaxIds = 8;     // nor those of more ids

  PieceCache() : slots_(kSlots) {}

  // Appends the ids of a piece to ids; false if the piece is not known.
  bool find(std::string_view piece, std::vector<uint32_t> &ids) const;

  void store(std::string_view piece, const uint32_t *ids, size_t count);

 private:
  struct alignas(64) Slot {
    uint8_t length = 0;  // of the piece; 0: empty
    uint8_t count = 0;
    std::array<char, kMaxBytes> piece;
    std::array<uint32_t, kMaxIds> ids;
  };
  static_assert(sizeof(Slot) == 64);

  static size_t slot_of(std::string_view piece);
  std::mutex &lock_of(size_t slot) const { return locks_[slot % locks_.size()]; }

  std::vector<Slot> slots_;
  mutable std::array<std::mutex, 64> locks_;
};

}  // namespace cua::tokenizer
