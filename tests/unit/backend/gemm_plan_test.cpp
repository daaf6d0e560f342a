// SPDX-License-Identifier: Apache-2.0
// How an algorithm of cuBLASLt is chosen: pure functions, no GPU needed.
#include "backend/cuda/gemm_plan.h"

#include "catch.h"

using namespace cua::backend::cuda;

namespace {

constexpr size_t kWorkspace = 1 << 20;

GemmCandidate candidate(float milliseconds, int32_t split_k = 1, uint32_t reduction = 0) {
  GemmCandidate c;
  c.milliseconds = milliseconds;
  c.split_k = split_k;
  c.reduction = reduction;
  return c;
}

std::optional<size_t> chosen(const std::vector<GemmCandidate> &ranked) {
  return choose(ranked, kWorkspace);
}

}  // namespace

TEST_CASE("row buckets cover their rows, grow, and are few") {
  uint32_t before = 0;
  size_t buckets = 0;
  for (uint32_t rows = 1; rows <= 20000; ++rows) {
    const uint32_t bucket = row_bucket(rows);
    if (bucket < std::min(rows, kMostPlannedRows) || bucket < before || bucket < kLeastRows)
      FAIL(rows);
    if (bucket != before) ++buckets;
    before = bucket;
  }
  CHECK(buckets == 8 + 2);
  CHECK(row_bucket(1) == 64);
  CHECK(row_bucket(65) == 128);
  CHECK(row_bucket(512) == 512);
  CHECK(row_bucket(513) == 1024);
  CHECK(row_bucket(16384) == kMostPlannedRows);
}

TEST_CASE("what splits the sum is never chosen, however fast") {
  CHECK(!chosen({}));
  CHECK(!chosen({candidate(1, 2), candidate(1, 1, 1)}));
  CHECK(chosen({candidate(0.1f, 4), candidate(0.2f, 1, 2), candidate(9)}) == 2u);
  GemmCandidate hungry = candidate(0.1f);
  hungry.workspace = kWorkspace + 1;
  GemmCandidate refused = candidate(0.1f);
  refused.supported = false;
  CHECK(chosen({hungry, refused, candidate(5)}) == 2u);
}

TEST_CASE("the fastest; untimed, the best-ranked") {
  CHECK(chosen({candidate(3), candidate(1), candidate(2)}) == 1u);
  CHECK(chosen({candidate(0), candidate(0)}) == 0u);
  CHECK(chosen({candidate(0), candidate(2)}) == 1u);
  CHECK(chosen({candidate(2), candidate(0)}) == 0u);
}
