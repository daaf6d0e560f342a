// SPDX-License-Identifier: Apache-2.0
#include "engine/shared_prefix.h"

#include <algorithm>
#include <random>

#include "catch.h"

using namespace cua::engine;

namespace {

using Ids = std::vector<uint32_t>;

// Runs of tokens, each (value, count).
Ids prompt(std::initializer_list<std::pair<uint32_t, size_t>> parts) {
  Ids ids;
  for (const auto &[value, count] : parts) ids.insert(ids.end(), count, value);
  return ids;
}

std::vector<SharedPrefix> find(const std::vector<Ids> &prompts, size_t start = 0, size_t cost = 32,
                               size_t most = 4, size_t room = 16384) {
  return shared_prefixes(prompts, std::vector<size_t>(prompts.size(), start), cost, most, room);
}

std::vector<size_t> sorted(std::vector<size_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

TEST_CASE("prompts that begin alike make a group, up to a multiple of 64") {
  const auto groups =
      find({prompt({{1, 200}, {2, 9}}), prompt({{7, 300}}), prompt({{1, 200}, {3, 90}})});
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].tokens == 192);
  CHECK(sorted(groups[0].prompts) == std::vector<size_t>{0, 2});
}

TEST_CASE("of each prompt a row is left") {
  const Ids whole = prompt({{1, 128}});
  CHECK(find({whole, whole})[0].tokens == 64);
  CHECK(find({whole, prompt({{1, 129}})})[0].tokens == 64);
  CHECK(find({prompt({{1, 129}}), prompt({{1, 129}})})[0].tokens == 128);
  CHECK(find({prompt({{1, 64}}), prompt({{1, 64}})}).empty());
  CHECK(find({Ids{1}, Ids{1}, Ids{2}}).empty());
  CHECK(find({}).empty());
  CHECK(find({whole}).empty());
}

TEST_CASE("what is there already is not saved again") {
  const std::vector<Ids> prompts{prompt({{1, 130}, {2, 5}}), prompt({{1, 130}, {3, 5}})};
  CHECK(find(prompts, 128).empty());
  CHECK(find(prompts, 64)[0].tokens == 128);
  CHECK(find(prompts, 64, 64).empty());
}

TEST_CASE("a group saves more than it costs") {
  const std::vector<Ids> three{prompt({{1, 200}, {2, 9}}), prompt({{1, 200}, {3, 9}}),
                               prompt({{1, 200}, {4, 9}})};
  CHECK(find(three, 0, 2 * 192 - 1).size() == 1);
  CHECK(find(three, 0, 2 * 192).empty());
}

TEST_CASE("the division that saves most is taken") {
  // All share 64; the last three share 640.
  const std::vector<Ids> prompts{prompt({{1, 64}, {2, 50}}), prompt({{1, 640}, {3, 9}}),
                                 prompt({{1, 640}, {4, 9}}), prompt({{1, 640}, {5, 9}})};
  const auto groups = find(prompts);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].tokens == 640);
  CHECK(sorted(groups[0].prompts) == std::vector<size_t>{1, 2, 3});
  // Many with little beat two with more.
  std::vector<Ids> many{prompt({{1, 128}, {9, 9}}), prompt({{1, 128}, {8, 9}})};
  for (uint32_t i = 10; i < 20; ++i) many.push_back(prompt({{1, 64}, {i, 9}}));
  REQUIRE(find(many).size() == 1);
  CHECK(find(many)[0].tokens == 64);
  CHECK(find(many)[0].prompts.size() == 12);
}

TEST_CASE("where there is not room for all groups, those that save most are taken") {
  std::vector<Ids> prompts;
  for (uint32_t kind = 1; kind <= 4; ++kind) {
    for (uint32_t i = 0; i < 2; ++i) prompts.push_back(prompt({{kind, 64 * kind}, {100 + i, 3}}));
  }
  const auto tokens = [](const std::vector<SharedPrefix> &groups) {
    std::vector<size_t> all;
    for (const SharedPrefix &group : groups) all.push_back(group.tokens);
    return all;
  };
  CHECK(tokens(find(prompts)) == std::vector<size_t>{256, 192, 128, 64});
  CHECK(tokens(find(prompts, 0, 32, 2)) == std::vector<size_t>{256, 192});
  CHECK(tokens(find(prompts, 0, 32, 4, 330)) == std::vector<size_t>{256, 64});
}

TEST_CASE("any prompts: groups are apart, and their prompts begin alike") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Ids> prompts;
    const size_t count = random() % 300;
    for (size_t i = 0; i < count; ++i) {
      Ids ids;
      const size_t blocks = random() % 6;
      for (size_t block = 0; block < blocks; ++block) ids.insert(ids.end(), 64, random() % 2);
      ids.insert(ids.end(), 1 + random() % 3, random() % 3);
      prompts.push_back(ids);
    }
    std::vector<bool> taken(count);
    for (const SharedPrefix &group : find(prompts)) {
      CHECK(group.tokens % kPrefixMultiple == 0);
      REQUIRE(group.prompts.size() >= 2);
      const Ids &first = prompts[group.prompts[0]];
      for (const size_t i : group.prompts) {
        CHECK(!taken[i]);
        taken[i] = true;
        REQUIRE(prompts[i].size() > group.tokens);
        CHECK(std::equal(first.begin(), first.begin() + static_cast<ptrdiff_t>(group.tokens),
                         prompts[i].begin()));
      }
    }
  }
}
