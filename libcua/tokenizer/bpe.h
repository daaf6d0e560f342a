// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/merge_queue.h"
#include "tokenizer/merge_table.h"

namespace cua::tokenizer {

// Byte-level byte-pair encoding of one piece: start from the ids of its bytes, then, as long as
// there is one, merge the pair of lowest rank, the leftmost of equals.
class Bpe {
 public:
  // Memory that one thread reuses from piece to piece; filled when the first long piece comes.
  struct Workspace {
    struct Symbol {
      uint32_t id;
      uint32_t previous, next;  // positions; kNone: none
      uint32_t rank;            // of the merge with the next symbol; kNone: none, or merged away
    };
    std::vector<Symbol> symbols;
    std::optional<MergeQueue> queue;
  };

  Bpe(const std::array<uint32_t, 256> &byte_ids, const std::vector<Merge> &merges)
      : byte_ids_(byte_ids), merges_(merges) {}

  // Appends the ids of a piece of fewer than 2^32 - 1 bytes. Thread safe, one workspace a thread.
  void encode(std::string_view piece, Workspace &workspace, std::vector<uint32_t> &ids) const;

  uint32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }

 private:
  static constexpr uint32_t kNone = MergeTable::kNone;
  static constexpr size_t kShort = 64;  // bytes; up to here a scan beats a queue

  void encode_short(std::string_view piece, std::vector<uint32_t> &ids) const;
  void encode_long(std::string_view piece, Workspace &workspace, std::vector<uint32_t> &ids) const;

  std::array<uint32_t, 256> byte_ids_;
  MergeTable merges_;
};

}  // namespace cua::tokenizer
