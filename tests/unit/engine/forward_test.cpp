// SPDX-License-Identifier: Apache-2.0
// Properties of the forward pass on the CPU backend: an answer depends on its own prompt alone, bit
// for bit, and stays finite where the gates go to their ends.
#include <algorithm>

#include "catch.h"
#include "random_model.h"

using namespace cua;
using test::Answer;
using test::random_ids;
using test::RandomModel;
using test::Runner;

namespace {

std::vector<std::vector<uint32_t>> prompts(uint32_t vocabulary) {
  std::vector<std::vector<uint32_t>> all;
  uint32_t seed = 0;
  for (const size_t length : {1, 2, 3, 4, 17, 63, 64, 65, 1, 128, 129, 200, 1, 16}) {
    all.push_back(random_ids(length, vocabulary, ++seed));
  }
  return all;
}

model::Config config_ending_in(model::LayerKind kind) {
  model::Config config = test::small_config();
  config.layers.push_back(kind);
  return config;
}

}  // namespace

TEST_CASE("float agrees with double") {
  for (const auto kind : {model::LayerKind::gdn, model::LayerKind::attention}) {
    const RandomModel model(config_ending_in(kind));
    Runner<float> single(model.config(), model.source());
    Runner<double> twice(model.config(), model.source());
    for (const auto &prompt : prompts(model.config().vocabulary)) {
      const Answer a = single.run(prompt), b = twice.run(prompt);
      CAPTURE(prompt.size());
      CHECK(test::largest_difference(a.logits, b.logits) < 1e-4);
      CHECK(test::largest_difference(a.hidden, b.hidden) < 1e-4);
    }
  }
}

TEST_CASE("a packed batch gives what single prompts give, bit for bit") {
  for (const auto kind : {model::LayerKind::gdn, model::LayerKind::attention}) {
    const RandomModel model(config_ending_in(kind));
    const auto all = prompts(model.config().vocabulary);
    Runner<float> one(model.config(), model.source(), 1);
    std::vector<Answer> alone;
    for (const auto &prompt : all) alone.push_back(one.run(prompt));

    std::mt19937 random(7);
    std::vector<size_t> order(all.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (const size_t threads : {1, 2, 3, 5}) {
      Runner<float> runner(model.config(), model.source(), threads);
      for (int round = 0; round < 4; ++round) {
        std::shuffle(order.begin(), order.end(), random);
        const size_t company = round == 0 ? all.size() : 1 + random() % all.size();
        std::vector<std::vector<uint32_t>> batch;
        for (size_t i = 0; i < company; ++i) batch.push_back(all[order[i]]);
        const auto answers = runner.run(batch);
        for (size_t i = 0; i < company; ++i) {
          CAPTURE(threads, round, i, batch[i].size());
          CHECK(answers[i] == alone[order[i]]);
        }
      }
    }
  }
}

TEST_CASE("more rows than one packing of the linear takes change nothing") {
  const RandomModel model(test::small_config());
  Runner<float> runner(model.config(), model.source());
  const auto long_prompt = random_ids(900, model.config().vocabulary, 3);
  const auto short_prompt = random_ids(30, model.config().vocabulary, 4);
  const Answer a = runner.run(long_prompt), b = runner.run(short_prompt);
  const auto both = runner.run({short_prompt, long_prompt, short_prompt});
  CHECK(both[0] == b);
  CHECK(both[1] == a);
  CHECK(both[2] == b);
}

TEST_CASE("a prompt split at a multiple of 64 with a prefix state gives the bits of one pass") {
  for (const auto kind : {model::LayerKind::gdn, model::LayerKind::attention}) {
    const RandomModel model(config_ending_in(kind));
    Runner<float> runner(model.config(), model.source());
    const auto prompt = random_ids(330, model.config().vocabulary, 11);
    const auto other = random_ids(90, model.config().vocabulary, 12);
    const Answer whole = runner.run(prompt), alone = runner.run(other);
    const auto cut = [&](size_t from, size_t to) {
      return std::vector<uint32_t>(prompt.begin() + static_cast<ptrdiff_t>(from),
                                   prompt.begin() + static_cast<ptrdiff_t>(to));
    };
    for (size_t split = 64; split < prompt.size(); split += 64) {
      CAPTURE(split);
      typename Runner<float>::State state;
      runner.run({cut(0, split)}, {}, &state);
      CHECK(state.tokens == split);
      CHECK(runner.run({cut(split, prompt.size())}, {&state})[0] == whole);
      // In company, some of which has no prefix.
      const auto packed =
          runner.run({other, cut(split, prompt.size()), other}, {nullptr, &state, nullptr});
      CHECK(packed[0] == alone);
      CHECK(packed[1] == whole);
      CHECK(packed[2] == alone);
    }
    // A state that itself began from a state.
    typename Runner<float>::State first, second;
    runner.run({cut(0, 64)}, {}, &first);
    runner.run({cut(64, 192)}, {&first}, &second);
    CHECK(second.tokens == 192);
    CHECK(runner.run({cut(192, prompt.size())}, {&second})[0] == whole);
    // And one shorter than the convolution reaches back.
    typename Runner<float>::State tiny;
    runner.run({cut(0, 2)}, {}, &tiny);
    CHECK(runner.run({cut(2, prompt.size())}, {&tiny})[0] == whole);
  }
}

TEST_CASE("every instruction set gives the same answer") {
  const RandomModel model(test::small_config());
  const auto all = prompts(model.config().vocabulary);
  Runner<double> oracle(model.config(), model.source());
  size_t variants = 0;
  for (const char *name : {"x86-64-v2", "x86-64-v3", "x86-64-v4", "generic"}) {
    const auto *kernels = backend::cpu::kernels_named<float>(name);
    if (kernels == nullptr) continue;
    ++variants;
    Runner<float> runner(model.config(), model.source(), 2, *kernels);
    for (const auto &prompt : all) {
      CAPTURE(name, prompt.size());
      const Answer answer = runner.run(prompt);
      CHECK(test::largest_difference(answer.logits, oracle.run(prompt).logits) < 1e-4);
      CHECK(runner.run({prompt, all[3]})[0] == answer);
    }
  }
  CHECK(variants >= 1);
}

TEST_CASE("gates at their ends, zero q and k, and long prompts stay finite") {
  const model::Config config = test::small_config();
  const auto prompt = random_ids(300, config.vocabulary, 5);
  const auto in_every_gdn_layer = [&](RandomModel &model, const char *name, float value) {
    for (size_t i = 0; i < config.layers.size(); ++i) {
      if (config.layers[i] != model::LayerKind::gdn) continue;
      model.fill("layers." + std::to_string(i) + ".linear_attn." + name, value);
    }
  };
  const auto check = [&](const RandomModel &model) {
    Runner<float> single(config, model.source());
    Runner<double> twice(config, model.source());
    const Answer a = single.run(prompt), b = twice.run(prompt);
    CHECK(test::finite(a));
    CHECK(test::largest_difference(a.logits, b.logits) < 2e-4);
  };

  SECTION("no decay: g is 0") {
    RandomModel model(config);
    in_every_gdn_layer(model, "A_log", -200.0f);
    check(model);
  }
  SECTION("full decay: g is -316") {
    RandomModel model(config);
    in_every_gdn_layer(model, "in_proj_a.weight", 0.0f);
    in_every_gdn_layer(model, "dt_bias", 19.75f);
    in_every_gdn_layer(model, "A_log", std::log(16.0f));
    check(model);
  }
  SECTION("a gate of thousands") {
    RandomModel model(config);
    in_every_gdn_layer(model, "A_log", 10.0f);
    check(model);
  }
  SECTION("zero q and k") {
    RandomModel model(config);
    in_every_gdn_layer(model, "in_proj_qkv.weight", 0.0f);
    check(model);
  }
  SECTION("zero attention q and k") {
    RandomModel model(config);
    model.fill("layers.2.self_attn.q_proj.weight", 0.0f);
    model.fill("layers.2.self_attn.k_proj.weight", 0.0f);
    check(model);
  }
  SECTION("large values") {
    RandomModel model(config);
    auto values = model.values("embed_tokens.weight");
    for (float &value : values) value *= 1e4f;
    model.set("embed_tokens.weight", {config.vocabulary, config.hidden}, values);
    Runner<float> runner(config, model.source());
    CHECK(test::finite(runner.run(prompt)));
  }
}

TEST_CASE("16,384 tokens stay finite") {
  model::Config config = test::small_config();
  config.layers = {model::LayerKind::gdn, model::LayerKind::attention};
  const RandomModel model(config);
  Runner<float> runner(config, model.source());
  CHECK(test::finite(runner.run(random_ids(16384, config.vocabulary, 6))));
}
