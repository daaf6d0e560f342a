// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cua::backend {

// What the operations of a backend need to know beyond the shapes of their arguments.
struct Dimensions {
  uint32_t hidden = 0, intermediate = 0;                           // H, I
  uint32_t heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;  // Hq, Hkv, D
  double rope_theta = 0, rms_norm_eps = 0;
  uint32_t gdn_key_heads = 0, gdn_value_heads = 0;  // Hk, Hv
  uint32_t gdn_key_dim = 0, gdn_value_dim = 0;      // Dk, Dv
  uint32_t conv_kernel = 0;
  std::vector<bool> gdn_layers;  // of each layer: Gated DeltaNet, or else attention
};

}  // namespace cua::backend
