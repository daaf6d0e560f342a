// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"

using cua::tokenizer::Bpe;
using cua::tokenizer::Merge;
using cua::tokenizer::MergeQueue;
using cua::tokenizer::MergeTable;

namespace {

// Byte b has the id 1000 + b, so that results may have ids below their parts.
std::array<uint32_t, 256> byte_ids() {
  std::array<uint32_t, 256> ids;
  for (uint32_t b = 0; b < 256; ++b) ids[b] = 1000 + b;
  return ids;
}

// The definition, word for word.
std::vector<uint32_t> reference(std::string_view piece, const std::vector<Merge> &merges) {
  std::vector<uint32_t> ids;
  for (const char c : piece) ids.push_back(1000 + static_cast<uint8_t>(c));
  std::map<std::pair<uint32_t, uint32_t>, size_t> rank_of;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    rank_of[{merges[rank].left, merges[rank].right}] = rank;
  }
  while (true) {
    size_t best = merges.size();
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = rank_of.find({ids[i], ids[i + 1]});
      if (found != rank_of.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[at] = merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Random merges over the letters a, b, c: every one joins two known tokens to a token of its own
// text. The order of the list is shuffled, so a part may rank behind what is made of it.
std::vector<Merge> random_merges(std::mt19937 &random, size_t count) {
  std::vector<std::pair<std::string, uint32_t>> tokens;
  for (const char c : {'a', 'b', 'c'}) {
    tokens.emplace_back(std::string(1, c), 1000 + static_cast<uint8_t>(c));
  }
  std::map<std::string, uint32_t> ids;
  std::set<std::pair<uint32_t, uint32_t>> pairs;
  std::vector<Merge> merges;
  const auto pick = [&] { return tokens[random() % tokens.size()]; };
  for (size_t tries = 0; merges.size() < count && tries < 100 * count; ++tries) {
    const auto left = pick();
    const auto right = pick();
    const std::string text = left.first + right.first;
    if (text.size() > 40 || !pairs.insert({left.second, right.second}).second) continue;
    const auto [entry, is_new] = ids.insert({text, static_cast<uint32_t>(ids.size())});
    if (is_new) tokens.emplace_back(text, entry->second);
    merges.push_back({left.second, right.second, entry->second});
  }
  for (size_t i = merges.size(); i > 1; --i) std::swap(merges[i - 1], merges[random() % i]);
  return merges;
}

std::string random_text(std::mt19937 &random, size_t length) {
  std::string text;
  const unsigned letters = 1 + random() % 3;
  while (text.size() < length) text += static_cast<char>('a' + random() % letters);
  return text;
}

}  // namespace

TEST_CASE("short and long pieces follow the definition") {
  std::mt19937 random(1);
  Bpe::Workspace workspace;
  for (int round = 0; round < 150; ++round) {
    const auto merges = random_merges(random, 1 + random() % 200);
    const Bpe bpe(byte_ids(), merges);
    workspace.queue.reset();
    for (int i = 0; i < 12; ++i) {
      const size_t length = i < 6 ? random() % 66 : 60 + random() % 400;
      const std::string text = random_text(random, length);
      std::vector<uint32_t> ids = {42};
      bpe.encode(text, workspace, ids);
      ids.erase(ids.begin());
      if (ids != reference(text, merges)) FAIL("round " << round << ", text " << text);
    }
  }
}

TEST_CASE("bytes without merges stay; equals merge from the left") {
  Bpe::Workspace workspace;
  std::vector<uint32_t> ids;
  Bpe(byte_ids(), {}).encode(std::string("\0\xFF", 2), workspace, ids);
  CHECK(ids == std::vector<uint32_t>{1000, 1255});
  ids.clear();
  Bpe(byte_ids(), {{1097, 1097, 3}}).encode("aaaaa", workspace, ids);
  CHECK(ids == std::vector<uint32_t>{3, 3, 1097});
}

TEST_CASE("a pair listed twice has its later rank") {
  const MergeTable table({{1, 2, 5}, {3, 4, 6}, {1, 2, 5}});
  CHECK(table.find(1, 2).rank == 2);
  CHECK(table.find(3, 4).rank == 1);
  CHECK(table.find(3, 4).result == 6);
  CHECK(table.find(2, 1).rank == MergeTable::kNone);
}

TEST_CASE("the merge queue gives the lowest rank, then the leftmost position") {
  std::mt19937 random(2);
  MergeQueue queue(50);
  for (int round = 0; round < 20; ++round) {
    std::multiset<std::pair<uint32_t, uint32_t>> expected;
    for (int i = 0; i < 3000; ++i) {
      if (random() % 5 < 3) {
        const uint32_t rank = random() % 50;
        const uint32_t position = random() % 2 ? static_cast<uint32_t>(i) : random() % 3000;
        queue.push(rank, position);
        expected.emplace(rank, position);
      }
      uint32_t rank;
      uint32_t position;
      while (!expected.empty() && (random() % 5 < 2 || i == 2999)) {
        REQUIRE(queue.pop(rank, position));
        REQUIRE(std::pair(rank, position) == *expected.begin());
        expected.erase(expected.begin());
      }
      if (expected.empty()) REQUIRE_FALSE(queue.pop(rank, position));
    }
  }
}
