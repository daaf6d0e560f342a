// SPDX-License-Identifier: Apache-2.0
// Small random models in memory, for tests of the forward pass.
#pragma once
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/backend.h"
#include "model/config.h"
#include "model/dimensions.h"
#include "model/forward.h"
#include "model/tensors.h"

namespace cua::test {

inline constexpr std::array<uint32_t, 26> kLetterIds{32, 33, 34, 35, 36, 37, 38, 39, 40,
                                                     41, 42, 43, 44, 45, 46, 47, 48, 49,
                                                     50, 51, 52, 53, 54, 55, 56, 57};

// Awkward on purpose: no width is a multiple of a vector.
inline model::Config small_config() {
  model::Config c;
  c.vocabulary = 101;
  c.hidden = 72;
  c.intermediate = 100;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 24;
  c.rotary_dim = 8;
  c.rope_theta = 1e7;
  c.gdn_key_heads = 2;
  c.gdn_value_heads = 4;
  c.gdn_key_dim = 16;
  c.gdn_value_dim = 20;
  c.conv_kernel = 4;
  using enum model::LayerKind;
  c.layers = {gdn, gdn, attention, gdn, attention};
  return c;
}

class RandomModel {
 public:
  explicit RandomModel(model::Config config, uint32_t seed = 1) : config_(std::move(config)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (const model::TensorSpec &spec : model::tensors(config_)) {
      std::vector<float> values;
      uint64_t n = 1;
      for (const uint64_t extent : spec.shape) n *= extent;
      const bool norm = spec.name.find("norm.weight") != std::string::npos;
      const bool gated = spec.name.find("linear_attn.norm") != std::string::npos;
      const float scale = spec.shape.size() == 2 && spec.name != "embed_tokens.weight"
                              ? 1 / std::sqrt(static_cast<float>(spec.shape[1]))
                              : 0.3f;
      for (uint64_t i = 0; i < n; ++i) {
        values.push_back((norm ? 0.1f : scale) * normal(random) + (gated ? 1.0f : 0.0f));
      }
      set(spec.name, spec.shape, std::move(values));
    }
  }

  const model::Config &config() const { return config_; }
  // Replaces a tensor's values by one constant.
  void fill(const std::string &name, float value) {
    Stored &stored = tensors_.at(name);
    std::vector<float> values(stored.tensor.elements(), value);
    set(name, stored.tensor.shape, std::move(values));
  }
  std::vector<float> values(const std::string &name) const {
    const Stored &stored = tensors_.at(name);
    std::vector<float> values(stored.tensor.elements());
    std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
    return values;
  }
  void set(const std::string &name, const std::vector<uint64_t> &shape, std::vector<float> values) {
    Stored &stored = tensors_[name];
    stored.bytes.resize(values.size() * sizeof(float));
    std::memcpy(stored.bytes.data(), values.data(), stored.bytes.size());
    stored.tensor = {backend::Dtype::f32, shape, stored.bytes.data()};
  }
  model::TensorSource source() const {
    return [this](const std::string &name) -> const backend::HostTensor & {
      return tensors_.at(name).tensor;
    };
  }

 private:
  struct Stored {
    std::vector<std::byte> bytes;
    backend::HostTensor tensor;
  };
  model::Config config_;
  std::map<std::string, Stored> tensors_;
};

// What a pass gives for one sequence.
struct Answer {
  std::vector<float> logits;  // [26]
  std::vector<float> hidden;  // [H]
  bool operator==(const Answer &) const = default;
};

// A model on the CPU backend. Real: float as in the product, double as the oracle.
template <class Real>
class Runner {
 public:
  using Backend = backend::cpu::Backend<Real>;
  using State = typename Backend::State;

  Runner(const model::Config &config, const model::TensorSource &source, size_t threads = 2,
         const backend::cpu::Kernels<Real> &kernels = backend::cpu::kernels<Real>())
      : hidden_(config.hidden),
        backend_(model::dimensions(config), threads, kernels),
        forward_(backend_, config, source) {}

  std::vector<Answer> run(const std::vector<std::vector<uint32_t>> &sequences,
                          const std::vector<const State *> &prefixes = {},
                          State *capture = nullptr) {
    std::vector<uint32_t> ids, cu_seqlens{0};
    for (const auto &sequence : sequences) {
      ids.insert(ids.end(), sequence.begin(), sequence.end());
      cu_seqlens.push_back(static_cast<uint32_t>(ids.size()));
    }
    std::vector<float> logits(26 * sequences.size()), hidden(hidden_ * sequences.size());
    forward_.run({ids, cu_seqlens, prefixes, capture}, kLetterIds, logits.data(), hidden.data());
    std::vector<Answer> answers(sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto logit = logits.begin() + static_cast<ptrdiff_t>(26 * i);
      const auto value = hidden.begin() + static_cast<ptrdiff_t>(hidden_ * i);
      answers[i].logits.assign(logit, logit + 26);
      answers[i].hidden.assign(value, value + static_cast<ptrdiff_t>(hidden_));
    }
    return answers;
  }
  Answer run(const std::vector<uint32_t> &sequence) {
    return run(std::vector<std::vector<uint32_t>>{sequence}).front();
  }

 private:
  size_t hidden_;
  Backend backend_;
  model::Forward<Backend> forward_;
};

inline std::vector<uint32_t> random_ids(size_t length, uint32_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<uint32_t> id(0, vocabulary - 1);
  std::vector<uint32_t> ids(length);
  for (uint32_t &i : ids) i = id(random);
  return ids;
}

inline bool finite(const Answer &answer) {
  for (const auto *values : {&answer.logits, &answer.hidden}) {
    for (const float value : *values) {
      if (!std::isfinite(value)) return false;
    }
  }
  return true;
}

inline double largest_difference(const std::vector<float> &a, const std::vector<float> &b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (!(difference <= largest)) largest = difference;  // a NaN counts
  }
  return largest;
}

}  // namespace cua::test
