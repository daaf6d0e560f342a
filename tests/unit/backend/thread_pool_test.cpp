// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/thread_pool.h"

#include <atomic>
#include <vector>

#include "catch.h"

using cua::backend::cpu::ThreadPool;

TEST_CASE("every item runs once, on a thread of the pool") {
  for (const size_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    REQUIRE(pool.threads() == threads);
    for (const size_t items : {0, 1, 2, 7, 100, 1000}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::atomic<int>> seen(items);
        std::atomic<bool> known{true};
        pool.run(items, [&](size_t item, size_t thread) {
          ++seen[item];
          if (thread >= threads) known = false;
        });
        bool once = true;
        for (const auto &count : seen) once = once && count == 1;
        CAPTURE(threads, items, round);
        CHECK(once);
        CHECK(known);
      }
    }
  }
}

TEST_CASE("what the items wrote is there when run returns") {
  ThreadPool pool(4);
  std::vector<size_t> values(5000);
  for (size_t round = 1; round <= 50; ++round) {
    pool.run(values.size(), [&](size_t item, size_t) { values[item] += item; });
    CHECK(values[4999] == round * 4999);
    CHECK(values[1] == round);
  }
}
