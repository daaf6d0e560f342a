// SPDX-License-Identifier: Apache-2.0
// The CPU backend against golden data: small random models whose logits, probabilities and hidden
// states were computed in float64 by an independent recurrence (see tests/data/README.md).
#include <unistd.h>

#include <filesystem>

#include "catch.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "random_model.h"
#include "safetensors_file.h"

using namespace cua;
namespace fs = std::filesystem;

namespace {

const fs::path kGolden = fs::path(CUA_TEST_DATA) / "golden";

boost::json::value read_json(const fs::path &path) {
  return boost::json::parse(test::read_bytes(path));
}

template <class Number>
std::vector<Number> numbers(const boost::json::value &array) {
  std::vector<Number> result;
  for (const auto &number : array.as_array()) result.push_back(number.to_number<Number>());
  return result;
}

double worst(const std::vector<float> &got, const std::vector<double> &wanted) {
  REQUIRE(got.size() == wanted.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(double{got[i]} - wanted[i]);
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

template <class Real>
test::Runner<Real> runner(const checkpoint::Checkpoint &checkpoint) {
  return {checkpoint.config(),
          [&](const std::string &name) -> const auto &{return checkpoint.tensor(name);
}
};  // namespace
}

// Every prompt of a golden file, against the numbers stored under `key`.
void check_folder(const fs::path &folder, const char *golden, const char *key) {
  const checkpoint::Checkpoint checkpoint(folder, checkpoint::MarkerPolicy::optional);
  auto single = runner<float>(checkpoint);
  auto twice = runner<double>(checkpoint);
  const auto json = read_json(kGolden / golden);
  std::vector<std::vector<uint32_t>> all;
  std::vector<test::Answer> alone;
  for (const auto &prompt : json.at("prompts").as_array()) {
    const auto ids = numbers<uint32_t>(prompt.at("ids"));
    const auto &expected = prompt.at(key);
    const auto logits = numbers<double>(expected.at("logits"));
    CAPTURE(std::string(prompt.at("name").as_string()), key);
    REQUIRE(ids.size() == prompt.at("len").to_number<size_t>());
    const test::Answer answer = single.run(ids);
    CHECK(worst(answer.logits, logits) < 1e-4);
    // The double backend differs by the rounding of its own output to float only.
    CHECK(worst(twice.run(ids).logits, logits) < 5e-6);
    if (const auto *hidden = expected.as_object().if_contains("hidden")) {
      CHECK(worst(answer.hidden, numbers<double>(*hidden)) < 1e-4);
    }
    for (uint32_t options = 1; options <= 26; ++options) {
      engine::Score score;
      std::copy(answer.logits.begin(), answer.logits.end(), score.logits.begin());
      engine::read_out(options, score);
      const auto probabilities = numbers<double>(expected.at("probs").at(options - 1));
      REQUIRE(probabilities.size() == options);
      for (uint32_t i = 0; i < 26; ++i) {
        CAPTURE(options, i);
        CHECK(score.probabilities[i] ==
              Approx(i < options ? probabilities[i] : 0.0).margin(1e-4).epsilon(0));
      }
    }
    all.push_back(ids);
    alone.push_back(answer);
  }
  REQUIRE(all.size() >= 16);
  CHECK(single.run(all) == alone);
}

}  // namespace

TEST_CASE("tiny") { check_folder(kGolden / "tiny", "golden_tiny.json", "fp64"); }

TEST_CASE("wide: public layout, two shards, F32 gates, vision and MTP tensors present") {
  check_folder(kGolden / "wide", "golden_wide.json", "fp64");
}

TEST_CASE("mid with its adapter, W + 2 B A written as an F32 folder") {
  for (const char *adapter : {"mid_lora", "mid_lora_mm"}) {
    test::FileTensors tensors = test::read_safetensors(kGolden / "mid/model.safetensors");
    const test::FileTensors factors =
        test::read_safetensors(kGolden / adapter / "adapter_model.safetensors");
    size_t merged = 0;
    for (const auto &[key, a] : factors) {
      const size_t at = key.find(".lora_A.weight");
      if (at == key.npos) continue;
      const test::FileTensor &b = factors.at(key.substr(0, at) + ".lora_B.weight");
      std::string name = key.substr(std::string("base_model.model.").size());
      name = name.substr(0, name.find(".lora_A")) + ".weight";
      if (const size_t nested = name.find("language_model."); nested != name.npos) {
        name.erase(nested, std::string("language_model.").size());
      }
      test::FileTensor &weight = tensors.at(name);
      std::vector<float> w = weight.values();
      const std::vector<float> fa = a.values(), fb = b.values();
      const size_t out = weight.shape[0], in = weight.shape[1], rank = a.shape[0];
      REQUIRE(a.shape == std::vector<uint64_t>{rank, in});
      REQUIRE(b.shape == std::vector<uint64_t>{out, rank});
      for (size_t o = 0; o < out; ++o) {
        for (size_t i = 0; i < in; ++i) {
          double sum = 0;
          for (size_t r = 0; r < rank; ++r) sum += double{fb[o * rank + r]} * fa[r * in + i];
          w[o * in + i] = static_cast<float>(w[o * in + i] + 2 * sum);
        }
      }
      weight = test::FileTensor::f32(weight.shape, w);
      ++merged;
    }
    CHECK(merged == 2 * 4 + 8 * 3);
    const fs::path folder =
        fs::temp_directory_path() / ("cua_golden_mid_" + std::to_string(::getpid()));
    fs::create_directories(folder);
    fs::copy_file(kGolden / "mid/config.json", folder / "config.json",
                  fs::copy_options::overwrite_existing);
    test::write_safetensors(folder / "model.safetensors", tensors);
    check_folder(folder, "golden_lora.json", "fp64_unmerged");
    fs::remove_all(folder);
  }
}
