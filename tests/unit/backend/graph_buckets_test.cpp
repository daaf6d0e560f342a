// SPDX-License-Identifier: Apache-2.0
// The row counts of captured graphs: a pure function, no GPU needed.
#include "backend/cuda/graph_buckets.h"

#include <charconv>
#include <fstream>
#include <set>
#include <string>

#include "catch.h"

using namespace cua::backend::cuda;

TEST_CASE("graph buckets hold their rows, are buckets themselves, and are few") {
  std::set<uint32_t> buckets;
  uint32_t before = 0;
  for (uint32_t rows = 1; rows <= kMostBucketRows; ++rows) {
    const uint32_t bucket = graph_bucket(rows);
    CAPTURE(rows, bucket);
    REQUIRE(bucket >= rows);
    REQUIRE(bucket - rows < kMostPadding);
    REQUIRE(bucket >= before);
    REQUIRE(bucket <= kMostBucketRows);
    REQUIRE(graph_bucket(bucket) == bucket);
    buckets.insert(bucket);
    before = bucket;
  }
  CHECK(buckets.size() <= 80);  // a capture each while loading
}

TEST_CASE("graph buckets pad the request data by less than 5 %, with and without the prefix") {
  // Of a line: "prompt_tokens": {"pick": 218}
  std::ifstream file(CUA_TEST_DATA "/requests/systemone-samples.jsonl");
  REQUIRE(file);
  for (const uint32_t prefix : {0u, 64u}) {
    file.clear();
    file.seekg(0);
    uint64_t rows = 0, padded = 0, prompts = 0;
    for (std::string line; std::getline(file, line);) {
      const size_t key = line.find("\"prompt_tokens\": {");
      REQUIRE(key != std::string::npos);
      const size_t number = line.find(": ", line.find('{', key)) + 2;
      uint32_t tokens = 0;
      REQUIRE(std::from_chars(line.data() + number, line.data() + line.size(), tokens).ec ==
              std::errc{});
      REQUIRE(tokens > prefix);
      rows += tokens - prefix;
      padded += graph_bucket(tokens - prefix);
      ++prompts;
    }
    REQUIRE(prompts == 71);
    CHECK(static_cast<double>(padded) < 1.05 * static_cast<double>(rows));
  }
}
