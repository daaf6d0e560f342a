// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <vector>

namespace cua::model {

enum class LayerKind : uint8_t { gdn, attention };  // "linear_attention", "full_attention"

// Dimensions of a Qwen3.5 text model; the names in quotes are config.json's.
struct Config {
  uint32_t vocabulary = 0;        // "vocab_size", V
  uint32_t hidden = 0;            // "hidden_size", H
  uint32_t intermediate = 0;      // "intermediate_size", I
  uint32_t heads = 0;             // "num_attention_heads", Hq
  uint32_t kv_heads = 0;          // "num_key_value_heads", Hkv; divides heads
  uint32_t head_dim = 0;          // "head_dim", D
  uint32_t rotary_dim = 0;        // head_dim * "partial_rotary_factor"; even
  double rope_theta = 0;          // "rope_theta"
  double rms_norm_eps = 1e-6;     // "rms_norm_eps"
  uint32_t gdn_key_heads = 0;     // "linear_num_key_heads", Hk
  uint32_t gdn_value_heads = 0;   // "linear_num_value_heads", Hv; a multiple of Hk
  uint32_t gdn_key_dim = 0;       // "linear_key_head_dim", Dk
  uint32_t gdn_value_dim = 0;     // "linear_value_head_dim", Dv
  uint32_t conv_kernel = 0;       // "linear_conv_kernel_dim"
  std::vector<LayerKind> layers;  // "layer_types"

  uint32_t gdn_key_width() const { return gdn_key_heads * gdn_key_dim; }
  uint32_t gdn_value_width() const { return gdn_value_heads * gdn_value_dim; }
  uint32_t conv_channels() const { return 2 * gdn_key_width() + gdn_value_width(); }  // q | k | v
};

}  // namespace cua::model
