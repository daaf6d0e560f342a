// SPDX-License-Identifier: Apache-2.0
// The wide golden model on the GPU, held to the noise that bf16 arithmetic has there: means at most
// 1.5 times and maxima at most twice those of the file. Needs a GPU.
//   golden_gpu_test FOLDER    of the unpacked tests/data
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "checkpoint/checkpoint.h"
#include "cuda_runner.h"

namespace {

using namespace cua;

std::vector<double> numbers(const boost::json::value &array) {
  std::vector<double> result;
  for (const auto &number : array.as_array()) result.push_back(number.to_number<double>());
  return result;
}

// Half the L1 distance of softmax(logits) from p.
double total_variation(const std::vector<float> &logits, const std::vector<double> &p) {
  double largest = -INFINITY, sum = 0, distance = 0;
  for (const float logit : logits) largest = std::max(largest, double{logit});
  for (const float logit : logits) sum += std::exp(logit - largest);
  for (size_t i = 0; i < p.size(); ++i) {
    distance += std::abs(std::exp(logits[i] - largest) / sum - p[i]);
  }
  return distance / 2;
}

double relative_error(const std::vector<float> &got, const std::vector<double> &wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

struct Noise {
  double sum = 0, largest = 0;
  void add(double value) {
    sum += value;
    largest = std::isnan(value) ? INFINITY : std::max(largest, value);
  }
};

bool within(const char *what, const Noise &noise, size_t n, double mean, double largest) {
  const double ours = noise.sum / static_cast<double>(n);
  const bool inside = ours <= 1.5 * mean && noise.largest <= 2 * largest;
  std::printf("%s: mean %.5f (allowed %.5f), largest %.5f (allowed %.5f): %s\n", what, ours,
              1.5 * mean, noise.largest, 2 * largest, inside ? "within" : "OUTSIDE");
  return inside;
}

int run(const std::filesystem::path &data) {
  const std::filesystem::path golden = data / "golden";
  std::ifstream file(golden / "golden_wide.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const boost::json::value json = boost::json::parse(text);
  const checkpoint::Checkpoint checkpoint(golden / "wide", checkpoint::MarkerPolicy::optional);
  test::CudaRunner cuda(
      checkpoint.config(), [&](const std::string &name) -> const auto & {
        return checkpoint.tensor(name);
      });
  Noise variation, hidden;
  size_t n = 0;
  for (const auto &prompt : json.at("prompts").as_array()) {
    std::vector<uint32_t> ids;
    for (const double id : numbers(prompt.at("ids"))) ids.push_back(static_cast<uint32_t>(id));
    const test::Answer answer = cuda.run(ids);
    const auto &exact = prompt.at("fp64");
    variation.add(total_variation(answer.logits, numbers(exact.at("probs").as_array().at(25))));
    hidden.add(relative_error(answer.hidden, numbers(exact.at("hidden"))));
    ++n;
  }
  const auto &noise = json.at("bf16_noise");
  const auto allowed = [&](const char *key) { return noise.at(key).to_number<double>(); };
  const bool inside = within("hidden_relerr", hidden, n, allowed("hidden_relerr_mean"),
                             allowed("hidden_relerr_max")) &
                      within("tv26", variation, n, allowed("tv26_mean"), allowed("tv26_max"));
  std::printf("%zu prompts of the wide golden model: %s\n", n, inside ? "within" : "OUTSIDE");
  return inside && n >= 16 ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: golden_gpu_test FOLDER (of the unpacked tests/data)\n");
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "golden_gpu_test: %s\n", error.what());
    // 77: skipped, where there is no GPU or no driver for it.
    return std::string(error.what()).find("cudaErrorNoDevice") != std::string::npos ||
                   std::string(error.what()).find("cudaErrorInsufficientDriver") !=
                       std::string::npos
               ? 77
               : 1;
  }
}
