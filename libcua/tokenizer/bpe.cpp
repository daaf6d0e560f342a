// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.h"

#include <algorithm>

namespace cua::tokenizer {

void Bpe::encode(std::string_view piece, Workspace &workspace, std::vector<uint32_t> &ids) const {
  if (piece.size() <= kShort) {
    encode_short(piece, ids);
  } else {
    encode_long(piece, workspace, ids);
  }
}

void Bpe::encode_short(std::string_view piece, std::vector<uint32_t> &ids) const {
  std::array<uint32_t, kShort> symbols;
  std::array<MergeTable::Found, kShort> merges;  // merges[i]: of symbols i and i + 1
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNone) break;
    symbols[best] = merges[best].result;
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    --count;
    std::copy(merges.begin() + std::min(best + 2, count), merges.begin() + count,
              merges.begin() + best + 1);
    if (best > 0) merges[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) merges[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + count);
}

void Bpe::encode_long(std::string_view piece, Workspace &workspace,
                      std::vector<uint32_t> &ids) const {
  auto &symbols = workspace.symbols;
  if (!workspace.queue) workspace.queue.emplace(merges_.ranks());
  MergeQueue &queue = *workspace.queue;
  const auto size = static_cast<uint32_t>(piece.size());
  symbols.resize(size);
  const auto seek_merge = [&](uint32_t at) {
    auto &symbol = symbols[at];
    symbol.rank =
        symbol.next == kNone ? kNone : merges_.find(symbol.id, symbols[symbol.next].id).rank;
    if (symbol.rank != kNone) queue.push(symbol.rank, at);
  };
  for (uint32_t i = 0; i < size; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], i ? i - 1 : kNone,
                  i + 1 < size ? i + 1 : kNone, kNone};
  }
  for (uint32_t i = 0; i < size; ++i) seek_merge(i);

  uint32_t rank;
  uint32_t at;
  while (queue.pop(rank, at)) {
    auto &left = symbols[at];
    if (left.rank != rank) continue;  // the pair has changed since it was queued
    auto &right = symbols[left.next];
    left.id = merges_.find(left.id, right.id).result;
    right.rank = kNone;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = at;
    seek_merge(at);
    if (left.previous != kNone) seek_merge(left.previous);
  }
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace cua::tokenizer
