// SPDX-License-Identifier: Apache-2.0
// The whole pass on the CUDA backend against the CPU backend in float64, and its bits against its
// own in other company. Needs a GPU.
#include <algorithm>
#include <cstdio>

#include "catch.h"
#include "cuda_runner.h"

using namespace cua;
using test::Answer;
using test::CudaRunner;
using test::random_ids;
using test::RandomModel;
using test::Runner;

namespace {

// Weights that bf16 holds exactly, so that both backends compute with the same numbers.
RandomModel bf16_model(const model::Config &config) {
  RandomModel model(config);
  for (const model::TensorSpec &spec : model::tensors(config)) {
    std::vector<float> values = model.values(spec.name);
    for (float &value : values) {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      bits &= 0xffff0000u;
      std::memcpy(&value, &bits, 4);
    }
    model.set(spec.name, spec.shape, std::move(values));
  }
  return model;
}

model::Config config_ending_in(model::LayerKind kind) {
  model::Config config = test::cuda_config();
  if (config.layers.back() != kind) config.layers.push_back(kind);
  return config;
}

constexpr size_t kLengths[] = {1,   2,   3,   4,   63,  64,  65,   127, 128,
                               129, 200, 218, 511, 512, 700, 1025, 2079};

}  // namespace

TEST_CASE("CUDA agrees with float64 within the noise of bf16") {
  for (const auto kind : {model::LayerKind::gdn, model::LayerKind::attention}) {
    const RandomModel model = bf16_model(config_ending_in(kind));
    CudaRunner cuda(model.config(), model.source());
    Runner<double> oracle(model.config(), model.source());
    double worst = 0;
    for (const size_t length : kLengths) {
      const auto prompt =
          random_ids(length, model.config().vocabulary, static_cast<uint32_t>(length));
      const Answer got = cuda.run(prompt), wanted = oracle.run(prompt);
      const double error = test::relative_error(got.hidden, wanted.hidden);
      worst = std::max(worst, error);
      CAPTURE(length, error);
      CHECK(test::finite(got));
      CHECK(error < 0.1);  // this model amplifies rounding; gate.py judges a sane one
    }
    std::printf("largest relative error of the hidden state: %.4f\n", worst);
  }
}

TEST_CASE("a packed batch gives what single prompts give on the GPU, bit for bit") {
  for (const auto kind : {model::LayerKind::gdn, model::LayerKind::attention}) {
    const RandomModel model = bf16_model(config_ending_in(kind));
    CudaRunner cuda(model.config(), model.source());
    std::vector<std::vector<uint32_t>> prompts;
    std::vector<Answer> alone;
    for (const size_t length : kLengths) {
      prompts.push_back(random_ids(length, model.config().vocabulary, 5));
      alone.push_back(cuda.run(prompts.back()));
    }
    std::mt19937 random(3);
    std::vector<size_t> order(prompts.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int round = 0; round < 8; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      const size_t company = round == 0 ? order.size() : 1 + random() % order.size();
      std::vector<std::vector<uint32_t>> batch;
      for (size_t i = 0; i < company; ++i) batch.push_back(prompts[order[i]]);
      const auto answers = cuda.run(batch);
      for (size_t i = 0; i < company; ++i) {
        CAPTURE(round, i, batch[i].size());
        CHECK(answers[i] == alone[order[i]]);
      }
    }
  }
}

TEST_CASE("a prompt split at a multiple of 64 gives the bits of one pass on the GPU") {
  for (const auto kind : {model::LayerKind::gdn, model::LayerKind::attention}) {
    const RandomModel model = bf16_model(config_ending_in(kind));
    CudaRunner cuda(model.config(), model.source());
    const auto prompt = random_ids(330, model.config().vocabulary, 11);
    const auto other = random_ids(90, model.config().vocabulary, 12);
    const Answer whole = cuda.run(prompt), alone = cuda.run(other);
    const auto cut = [&](size_t from, size_t to) {
      return std::vector<uint32_t>(prompt.begin() + static_cast<ptrdiff_t>(from),
                                   prompt.begin() + static_cast<ptrdiff_t>(to));
    };
    for (size_t split = 64; split < prompt.size(); split += 64) {
      CAPTURE(split);
      auto state = cuda.state(split);
      cuda.run({cut(0, split)}, {}, &state);
      CHECK(cuda.run({cut(split, prompt.size())}, {&state})[0] == whole);
      const auto packed =
          cuda.run({other, cut(split, prompt.size()), other}, {nullptr, &state, nullptr});
      CHECK(packed[0] == alone);
      CHECK(packed[1] == whole);
      CHECK(packed[2] == alone);
    }
  }
}

TEST_CASE("a short batch, for the sanitizers", "[short]") {
  const RandomModel model = bf16_model(config_ending_in(model::LayerKind::gdn));
  CudaRunner cuda(model.config(), model.source());
  const auto a = random_ids(70, model.config().vocabulary, 1);
  const auto b = random_ids(1, model.config().vocabulary, 2);
  const auto answers = cuda.run({a, b, a});
  CHECK(answers[0] == answers[2]);
  CHECK(answers[1] == cuda.run(b));
  auto state = cuda.state(64);
  const auto first = random_ids(64, model.config().vocabulary, 3);
  cuda.run({first}, {}, &state);
  CHECK(test::finite(cuda.run({b}, {&state})[0]));
}

TEST_CASE("gates at their ends, zero q and k, and long prompts stay finite on the GPU") {
  const model::Config config = test::cuda_config();
  const auto check = [&](const char *name, float value, size_t length) {
    RandomModel model = bf16_model(config);
    for (size_t i = 0; i < config.layers.size() && name != nullptr; ++i) {
      if (config.layers[i] != model::LayerKind::gdn) continue;
      model.fill("layers." + std::to_string(i) + ".linear_attn." + name, value);
    }
    CudaRunner cuda(config, model.source());
    Runner<float> cpu(config, model.source());
    const auto prompt = random_ids(length, config.vocabulary, 5);
    const Answer got = cuda.run(prompt);
    CAPTURE(name == nullptr ? "" : name, value, length);
    CHECK(test::finite(got));
    if (length < 1000) CHECK(test::relative_error(got.hidden, cpu.run(prompt).hidden) < 0.03);
  };
  check("A_log", -80.0f, 300);             // no decay
  check("A_log", 5.75f, 300);              // g to -316 and beyond
  check("in_proj_qkv.weight", 0.0f, 300);  // zero q and k
  check(nullptr, 0, 16384);
}
