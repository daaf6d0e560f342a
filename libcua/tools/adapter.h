// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/host_tensor.h"
#include "model/config.h"

namespace cua::tools {

// The two factors for one weight: W + scale * B A.
struct Factors {
  backend::HostTensor a;  // [rank, inputs]
  backend::HostTensor b;  // [outputs, rank]
  float scale = 0;        // alpha / rank, or alpha / sqrt(rank) with rsLoRA
};

// A LoRA adapter as PEFT saves it: adapter_config.json and adapter_model.safetensors, mapped.
class Adapter {
 public:
  // Takes all of it or throws Error BAD_MODEL or UNSUPPORTED that names the key at fault: a
  // setting that this version would have to ignore, a key that fits no weight of `config`'s model,
  // one factor without the other, a shape or rank that does not fit, a weight that the settings
  // name and the file lacks.
  Adapter(const std::filesystem::path &folder, const model::Config &config);
  ~Adapter();

  // By the canonical name of the weight (model/tensors.h).
  const std::map<std::string, Factors, std::less<>> &factors() const;
  // What does not stand in the way of a merge.
  const std::vector<std::string> &warnings() const;
  // "base_model_name_or_path"; may be empty.
  const std::string &base() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cua::tools
