// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config_json.h"

#include <boost/json.hpp>
#include <cmath>

#include "checkpoint/json_fields.h"
#include "checkpoint/printable.h"
#include "error.h"

namespace cua::checkpoint {
namespace {

// So that no product of two dimensions leaves 64 bits and no count leaves 32.
constexpr uint32_t kMostWidth = 1u << 20;
constexpr uint32_t kMostVocabulary = 1u << 24;
constexpr uint32_t kMostHeads = 1u << 12;
constexpr uint32_t kMostLayers = 1u << 12;

model::LayerKind layer_kind(const Fields &fields, const boost::json::value &value) {
  if (value.is_string() && value.as_string() == "linear_attention") return model::LayerKind::gdn;
  if (value.is_string() && value.as_string() == "full_attention")
    return model::LayerKind::attention;
  fields.unsupported("layer_types", "holds " + printable(boost::json::serialize(value)) +
                                        "; linear_attention and full_attention are known");
}

std::vector<model::LayerKind> layer_kinds(const Fields &fields) {
  const uint32_t layers = fields.count("num_hidden_layers", kMostLayers);
  std::vector<model::LayerKind> kinds;
  if (const auto *const types = fields.array("layer_types")) {
    for (const auto &type : *types) kinds.push_back(layer_kind(fields, type));
    if (kinds.size() != layers) {
      fields.fail("layer_types", "has " + std::to_string(kinds.size()) +
                                     " entries for \"num_hidden_layers\" " +
                                     std::to_string(layers));
    }
    return kinds;
  }
  const uint32_t interval = fields.has("full_attention_interval")
                                ? fields.count("full_attention_interval", kMostLayers)
                                : 4;
  for (uint32_t i = 1; i <= layers; ++i) {
    kinds.push_back(i % interval == 0 ? model::LayerKind::attention : model::LayerKind::gdn);
  }
  return kinds;
}

void read_rotary(const Fields &fields, const std::string &file, model::Config &config) {
  std::optional<double> theta = fields.number("rope_theta");
  std::optional<double> part = fields.number("partial_rotary_factor");
  for (const char *name : {"rope_parameters", "rope_scaling"}) {
    const auto *const object = fields.object(name);
    if (object == nullptr) continue;
    const Fields rope(*object, file);
    for (const char *key : {"rope_type", "type"}) {
      const auto type = rope.text(key);
      if (type && *type != "default" && *type != "mrope") {
        rope.unsupported(key, "is \"" + printable(*type) + "\"; only default is known");
      }
    }
    if (const auto value = rope.number("rope_theta")) theta = value;
    if (const auto value = rope.number("partial_rotary_factor")) part = value;
  }
  if (!theta) fields.fail("rope_theta", "is missing");
  if (*theta <= 1) fields.fail("rope_theta", "is not above 1");
  config.rope_theta = *theta;
  const double width = config.head_dim * part.value_or(0.25);  // the model type's own default
  config.rotary_dim = static_cast<uint32_t>(std::max(0.0, std::min(width, 1e6)));
  if (config.rotary_dim < 2 || config.rotary_dim > config.head_dim || config.rotary_dim % 2 != 0) {
    fields.fail("partial_rotary_factor", "gives " + std::to_string(config.rotary_dim) +
                                             " rotary dimensions of a head_dim of " +
                                             std::to_string(config.head_dim) +
                                             "; an even number of 2 to head_dim is needed");
  }
}

}  // namespace

model::Config parse_config(std::string_view text, const std::string &file) {
  const boost::json::object root = parse_json_object(text, file);
  const Fields outer(root, file);
  const boost::json::object *const nested = outer.object("text_config");
  const Fields fields(nested != nullptr ? *nested : root, file);

  const auto type = fields.text("model_type");
  if (!type || (*type != "qwen3_5_text" && *type != "qwen3_5")) {
    fields.unsupported("model_type",
                       (type ? "is \"" + printable(*type) + "\"" : std::string("is missing")) +
                           "; Qwen3.5 text models (qwen3_5_text) are supported");
  }
  bool tied = false;  // as in Transformers, where nothing is said
  for (const Fields *level : {&outer, &fields}) {
    const auto value = level->boolean("tie_word_embeddings");
    if (value == false) {
      level->unsupported("tie_word_embeddings",
                         "is false; only models with tied embeddings are supported");
    }
    tied = tied || value == true;
  }
  if (!tied) {
    fields.unsupported("tie_word_embeddings",
                       "is missing, which means false; only models with tied embeddings are "
                       "supported");
  }
  if (fields.boolean("attention_bias") == true) {
    fields.unsupported("attention_bias", "is true; projections with a bias are not supported");
  }
  if (fields.boolean("attn_output_gate") == false) {
    fields.unsupported("attn_output_gate", "is false; attention without its gate is not supported");
  }
  if (const auto act = fields.text("hidden_act"); act && *act != "silu") {
    fields.unsupported("hidden_act", "is \"" + printable(*act) + "\"; only silu is supported");
  }

  model::Config config;
  config.vocabulary = fields.count("vocab_size", kMostVocabulary);
  config.hidden = fields.count("hidden_size", kMostWidth);
  config.intermediate = fields.count("intermediate_size", kMostWidth);
  config.heads = fields.count("num_attention_heads", kMostHeads);
  config.kv_heads = fields.count("num_key_value_heads", kMostHeads);
  config.head_dim = fields.count("head_dim", kMostHeads);
  config.gdn_key_heads = fields.count("linear_num_key_heads", kMostHeads);
  config.gdn_value_heads = fields.count("linear_num_value_heads", kMostHeads);
  config.gdn_key_dim = fields.count("linear_key_head_dim", kMostHeads);
  config.gdn_value_dim = fields.count("linear_value_head_dim", kMostHeads);
  config.conv_kernel = fields.count("linear_conv_kernel_dim", 64);
  if (config.heads % config.kv_heads != 0) {
    fields.fail("num_attention_heads", "is not a multiple of \"num_key_value_heads\"");
  }
  if (config.gdn_value_heads % config.gdn_key_heads != 0) {
    fields.fail("linear_num_value_heads", "is not a multiple of \"linear_num_key_heads\"");
  }
  const auto eps = fields.number("rms_norm_eps");
  if (!eps) fields.fail("rms_norm_eps", "is missing");
  if (*eps <= 0 || *eps > 1) fields.fail("rms_norm_eps", "is not between 0 and 1");
  config.rms_norm_eps = *eps;
  read_rotary(fields, file, config);
  config.layers = layer_kinds(fields);
  return config;
}

}  // namespace cua::checkpoint
