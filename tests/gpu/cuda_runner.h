// SPDX-License-Identifier: Apache-2.0
// A model on the CUDA backend, and random models of the dimensions that its kernels take.
#pragma once
#include "backend/cuda/backend.h"
#include "random_model.h"

namespace cua::test {

inline model::Config cuda_config() {
  model::Config c;
  c.vocabulary = 160;
  c.hidden = 192;
  c.intermediate = 320;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 256;
  c.rotary_dim = 64;
  c.rope_theta = 1e7;
  c.gdn_key_heads = 3;
  c.gdn_value_heads = 6;  // b | a are 12 columns: padded
  c.gdn_key_dim = 128;
  c.gdn_value_dim = 128;
  c.conv_kernel = 4;
  using enum model::LayerKind;
  c.layers = {gdn, attention, gdn, attention, gdn, attention};
  return c;
}

class CudaRunner {
 public:
  using Backend = backend::cuda::Backend;
  using State = Backend::State;

  CudaRunner(const model::Config &config, const model::TensorSource &source)
      : hidden_(config.hidden),
        backend_(model::dimensions(config), model::weight_bytes<Backend>(config, source), 16384),
        forward_(backend_, config, source) {
    backend_.upload({});
  }

  State state(size_t tokens) { return State(backend_.dimensions(), tokens); }

  std::vector<Answer> run(const std::vector<std::vector<uint32_t>> &sequences,
                          const std::vector<const State *> &prefixes = {},
                          State *capture = nullptr) {
    std::vector<uint32_t> ids, cu_seqlens{0};
    for (const auto &sequence : sequences) {
      ids.insert(ids.end(), sequence.begin(), sequence.end());
      cu_seqlens.push_back(static_cast<uint32_t>(ids.size()));
    }
    const typename Backend::Batch batch{ids, cu_seqlens, prefixes, capture};
    backend_.start_measuring();
    forward_.run(batch, kLetterIds, nullptr);
    backend_.reserve_scratch(backend_.stop_measuring());
    if (!backend_.fits(batch)) backend_.reserve_batch(batch.rows(), batch.sequences());
    backend_.stage(batch);
    std::vector<float> hidden(hidden_ * sequences.size());
    forward_.run(batch, kLetterIds, nullptr, hidden.data());
    backend_.wait();
    std::vector<Answer> answers(sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto value = hidden.begin() + static_cast<ptrdiff_t>(hidden_ * i);
      answers[i].logits.assign(backend_.logits() + 26 * i, backend_.logits() + 26 * (i + 1));
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

// ||a - b|| / ||b||
inline double relative_error(const std::vector<float> &a, const std::vector<float> &b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace cua::test
