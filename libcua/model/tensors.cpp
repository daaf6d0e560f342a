// SPDX-License-Identifier: Apache-2.0
#include "model/tensors.h"

namespace cua::model {

std::vector<TensorSpec> tensors(const Config &c) {
  const uint64_t H = c.hidden, I = c.intermediate, D = c.head_dim;
  std::vector<TensorSpec> all;
  all.push_back({"embed_tokens.weight", {c.vocabulary, H}});
  for (size_t layer = 0; layer < c.layers.size(); ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const auto add = [&](const char *name, std::vector<uint64_t> shape) {
      all.push_back({prefix + name, std::move(shape)});
    };
    add("input_layernorm.weight", {H});
    if (c.layers[layer] == LayerKind::gdn) {
      add("linear_attn.in_proj_qkv.weight", {c.conv_channels(), H});
      add("linear_attn.in_proj_z.weight", {c.gdn_value_width(), H});
      add("linear_attn.in_proj_b.weight", {c.gdn_value_heads, H});
      add("linear_attn.in_proj_a.weight", {c.gdn_value_heads, H});
      add("linear_attn.conv1d.weight", {c.conv_channels(), 1, c.conv_kernel});
      add("linear_attn.A_log", {c.gdn_value_heads});
      add("linear_attn.dt_bias", {c.gdn_value_heads});
      add("linear_attn.norm.weight", {c.gdn_value_dim});
      add("linear_attn.out_proj.weight", {H, c.gdn_value_width()});
    } else {
      add("self_attn.q_proj.weight", {2 * uint64_t{c.heads} * D, H});
      add("self_attn.k_proj.weight", {uint64_t{c.kv_heads} * D, H});
      add("self_attn.v_proj.weight", {uint64_t{c.kv_heads} * D, H});
      add("self_attn.o_proj.weight", {H, uint64_t{c.heads} * D});
      add("self_attn.q_norm.weight", {D});
      add("self_attn.k_norm.weight", {D});
    }
    add("post_attention_layernorm.weight", {H});
    add("mlp.gate_proj.weight", {I, H});
    add("mlp.up_proj.weight", {I, H});
    add("mlp.down_proj.weight", {H, I});
  }
  all.push_back({"norm.weight", {H}});
  return all;
}

}  // namespace cua::model
