// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace cua::model {

// One tensor that the forward pass needs. Names are canonical: what follows
// "model.language_model." or "model." in a checkpoint, as in "layers.3.self_attn.q_proj.weight".
struct TensorSpec {
  std::string name;
  std::vector<uint64_t> shape;
};

// Every tensor of a model of these dimensions, embedding first, then layer by layer, then the norm.
std::vector<TensorSpec> tensors(const Config &config);

}  // namespace cua::model
