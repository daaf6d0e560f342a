// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/piece_cache.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"

using cua::tokenizer::PieceCache;

namespace {

// Ids that tell the piece they belong to.
std::vector<uint32_t> ids_of(const std::string &piece) {
  std::vector<uint32_t> ids;
  for (size_t i = 0; i < std::min(piece.size(), PieceCache::kMaxIds); ++i) {
    ids.push_back(static_cast<uint32_t>(std::hash<std::string>()(piece) + i));
  }
  return ids;
}

}  // namespace

TEST_CASE("the cache returns what was stored, appended, and nothing else") {
  PieceCache cache;
  std::vector<uint32_t> ids = {7};
  CHECK_FALSE(cache.find("a", ids));
  for (const std::string &piece : {std::string("a"), std::string("\0", 1), std::string("\0\0", 2),
                                   std::string(8, 'x'), std::string(PieceCache::kMaxBytes, 'y')}) {
    const auto stored = ids_of(piece);
    cache.store(piece, stored.data(), stored.size());
    ids = {7};
    REQUIRE(cache.find(piece, ids));
    CHECK(std::vector(ids.begin() + 1, ids.end()) == stored);
  }
  CHECK(ids[0] == 7);
}

TEST_CASE("the cache keeps no long piece and no long result") {
  PieceCache cache;
  std::vector<uint32_t> ids;
  const std::vector<uint32_t> many(PieceCache::kMaxIds + 1);
  cache.store("ab", many.data(), many.size());
  CHECK_FALSE(cache.find("ab", ids));
  const std::string piece(PieceCache::kMaxBytes + 1, 'x');
  cache.store(piece, many.data(), 1);
  CHECK_FALSE(cache.find(piece, ids));
  cache.store("", many.data(), 0);
  CHECK_FALSE(cache.find("", ids));
  CHECK(ids.empty());
}

TEST_CASE("the cache forgets when it is full, and never mixes pieces up") {
  PieceCache cache;
  const size_t pieces = 4 * PieceCache::kSlots;
  std::vector<uint32_t> ids;
  for (size_t i = 0; i < pieces; ++i) {
    const std::string piece = std::to_string(i);
    const auto stored = ids_of(piece);
    cache.store(piece, stored.data(), stored.size());
  }
  size_t known = 0;
  for (size_t i = 0; i < pieces; ++i) {
    const std::string piece = std::to_string(i);
    ids.clear();
    if (!cache.find(piece, ids)) continue;
    ++known;
    if (ids != ids_of(piece)) FAIL("wrong ids for " << piece);
  }
  CHECK(known <= PieceCache::kSlots);
  CHECK(known > PieceCache::kSlots / 2);  // the hash spreads
}

TEST_CASE("threads share the cache") {
  PieceCache cache;
  std::atomic<bool> wrong = false;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<uint32_t> ids;
      for (unsigned i = 0; i < 40000; ++i) {
        const std::string piece = std::to_string((i * (t + 1)) % 5000);
        const auto stored = ids_of(piece);
        ids.clear();
        if (cache.find(piece, ids)) {
          if (ids != stored) wrong = true;
        } else {
          cache.store(piece, stored.data(), stored.size());
        }
      }
    });
  }
  for (auto &thread : threads) thread.join();
  CHECK_FALSE(wrong);
}
