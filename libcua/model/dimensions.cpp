// SPDX-License-Identifier: Apache-2.0
#include "model/dimensions.h"

namespace cua::model {

backend::Dimensions dimensions(const Config &config) {
  backend::Dimensions d;
  d.hidden = config.hidden;
  d.intermediate = config.intermediate;
  d.heads = config.heads;
  d.kv_heads = config.kv_heads;
  d.head_dim = config.head_dim;
  d.rotary_dim = config.rotary_dim;
  d.rope_theta = config.rope_theta;
  d.rms_norm_eps = config.rms_norm_eps;
  d.gdn_key_heads = config.gdn_key_heads;
  d.gdn_value_heads = config.gdn_value_heads;
  d.gdn_key_dim = config.gdn_key_dim;
  d.gdn_value_dim = config.gdn_value_dim;
  d.conv_kernel = config.conv_kernel;
  for (const LayerKind kind : config.layers) d.gdn_layers.push_back(kind == LayerKind::gdn);
  return d;
}

}  // namespace cua::model
