// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/synthetic.h"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "backend/bf16.h"
#include "checkpoint/marker.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/staging.h"
#include "checkpoint/workers.h"
#include "error.h"
#include "model/tensors.h"

namespace cua::checkpoint {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

model::Config config_of(const std::string &shape) {
  model::Config c;
  c.rope_theta = 1e7;
  c.rms_norm_eps = 1e-6;
  c.conv_kernel = 4;
  size_t layers = 4;
  if (shape == "tiny") {
    c.vocabulary = 512;
    c.hidden = 64;
    c.intermediate = 128;
    c.heads = 2;
    c.kv_heads = 1;
    c.head_dim = 32;
    c.gdn_key_heads = 2;
    c.gdn_value_heads = 4;
    c.gdn_key_dim = c.gdn_value_dim = 16;
  } else if (shape == "wide") {
    c.vocabulary = 640;
    c.hidden = 192;
    c.intermediate = 320;
    c.heads = 4;
    c.kv_heads = 1;
    c.head_dim = 256;
    c.gdn_key_heads = 2;
    c.gdn_value_heads = 4;
    c.gdn_key_dim = c.gdn_value_dim = 128;
  } else if (shape == "4b") {
    c.vocabulary = 248320;
    c.hidden = 2560;
    c.intermediate = 9216;
    c.heads = 16;
    c.kv_heads = 4;
    c.head_dim = 256;
    c.gdn_key_heads = 16;
    c.gdn_value_heads = 32;
    c.gdn_key_dim = c.gdn_value_dim = 128;
    layers = 32;
  } else {
    throw Error(CUA_INVALID_ARGUMENT,
                "the shape \"" + shape + "\" is unknown; use tiny, wide or 4b");
  }
  c.rotary_dim = c.head_dim / 4;
  for (size_t i = 1; i <= layers; ++i) {
    c.layers.push_back(i % 4 == 0 ? model::LayerKind::attention : model::LayerKind::gdn);
  }
  return c;
}

// config.json as Transformers writes it for the text model.
json::object config_json(const model::Config &c) {
  json::array layer_types;
  for (const model::LayerKind kind : c.layers) {
    layer_types.emplace_back(kind == model::LayerKind::gdn ? "linear_attention" : "full_attention");
  }
  const uint32_t third = c.rotary_dim / 2 / 3;
  return {{"architectures", {"Qwen3_5ForCausalLM"}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"dtype", "bfloat16"},
          {"head_dim", c.head_dim},
          {"hidden_act", "silu"},
          {"hidden_size", c.hidden},
          {"initializer_range", 0.02},
          {"intermediate_size", c.intermediate},
          {"layer_types", std::move(layer_types)},
          {"linear_conv_kernel_dim", c.conv_kernel},
          {"linear_key_head_dim", c.gdn_key_dim},
          {"linear_num_key_heads", c.gdn_key_heads},
          {"linear_num_value_heads", c.gdn_value_heads},
          {"linear_value_head_dim", c.gdn_value_dim},
          {"max_position_embeddings", 262144},
          {"model_type", "qwen3_5_text"},
          {"num_attention_heads", c.heads},
          {"num_hidden_layers", c.layers.size()},
          {"num_key_value_heads", c.kv_heads},
          {"partial_rotary_factor", 0.25},
          {"rms_norm_eps", 1e-6},
          {"rope_parameters",
           {{"mrope_interleaved", true},
            {"mrope_section", {c.rotary_dim / 2 - 2 * third, third, third}},
            {"partial_rotary_factor", 0.25},
            {"rope_theta", c.rope_theta},
            {"rope_type", "default"}}},
          {"tie_word_embeddings", true},
          {"use_cache", true},
          {"vocab_size", c.vocabulary}};
}

// The same for the multimodal model that the public checkpoint is.
json::object base_config_json(const model::Config &c) {
  json::object text = config_json(c);
  text.erase("architectures");
  return {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
          {"dtype", "bfloat16"},
          {"model_type", "qwen3_5"},
          {"text_config", std::move(text)},
          {"tie_word_embeddings", true},
          {"vision_config", {{"depth", 2}, {"hidden_size", 64}, {"model_type", "qwen3_5"}}}};
}

constexpr uint64_t kRank = 16;

json::object adapter_config_json() {
  return {{"alpha_pattern", json::object()},
          {"base_model_name_or_path", "synthetic"},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"lora_alpha", 2 * kRank},
          {"lora_dropout", 0.0},
          {"modules_to_save", nullptr},
          {"peft_type", "LORA"},
          {"r", kRank},
          {"rank_pattern", json::object()},
          {"target_modules",
           {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}},
          {"task_type", "CAUSAL_LM"},
          {"use_dora", false},
          {"use_rslora", false}};
}

// ---- random numbers: a function of seed, tensor and block alone --------------------------------

class Random {
 public:
  explicit Random(uint64_t state) : state_(state) {}
  uint64_t next() {  // SplitMix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  // Four 16-bit uniforms added: near enough to a normal of deviation 1, bounded, and the same
  // everywhere.
  float normal() {
    const uint64_t bits = next();
    const int sum = static_cast<int>(bits & 0xffff) + static_cast<int>(bits >> 16 & 0xffff) +
                    static_cast<int>(bits >> 32 & 0xffff) + static_cast<int>(bits >> 48);
    return static_cast<float>(sum - 2 * 65535) * (1.0f / 37837.0f);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

enum class Kind { normal, uniform, a_log, dt_bias };

// What the values of a tensor are: kind, mean, deviation (or half width).
struct Recipe {
  Kind kind = Kind::normal;
  float mean = 0, scale = 0;
};

bool ends_with(const std::string &text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Scales that keep a random model sane: the embedding dominates the residual stream, so that errors
// of rounding are not amplified from layer to layer (bf16 and fp32 would soon disagree), while the
// layers together still move the letters' logits by more than one from prompt to prompt.
Recipe recipe(const model::TensorSpec &spec, size_t layers) {
  const std::string &name = spec.name;
  const float unit = spec.shape.size() == 2 ? 1 / std::sqrt(static_cast<float>(spec.shape[1])) : 0;
  // Letter logits of a deviation of 2.5, once the final norm has taken a tenth.
  if (name == "embed_tokens.weight") return {Kind::normal, 0, 25 * unit};
  if (name == "norm.weight") return {Kind::normal, -0.9f, 0.01f};
  if (ends_with(name, "A_log")) return {Kind::a_log};
  if (ends_with(name, "dt_bias")) return {Kind::dt_bias};
  if (ends_with(name, "conv1d.weight")) return {Kind::uniform, 0, 0.5f};
  if (ends_with(name, "linear_attn.norm.weight")) return {Kind::normal, 1, 0.1f};
  // Attention sharp enough for the last row to see single tokens and not an average of all.
  if (ends_with(name, "q_norm.weight") || ends_with(name, "k_norm.weight")) {
    return {Kind::normal, 0.4f, 0.1f};
  }
  if (spec.shape.size() == 1) return {Kind::normal, 0, 0.1f};  // norms of the form 1 + w
  for (const char *adds : {"out_proj.weight", "o_proj.weight", "down_proj.weight"}) {
    if (ends_with(name, adds)) {
      return {Kind::normal, 0,
              0.3f * std::pow(32.0f / static_cast<float>(layers), 4.0f / 3) * unit};
    }
  }
  return {Kind::normal, 0, unit};
}

float value(Random &random, const Recipe &recipe) {
  switch (recipe.kind) {
    case Kind::uniform:
      return recipe.mean + recipe.scale * static_cast<float>(2 * random.uniform() - 1);
    case Kind::a_log:
      return static_cast<float>(std::log(1 + 15 * random.uniform()));
    case Kind::dt_bias: {  // softplus^-1 of a step, log-uniform over 0.001 to 0.1
      const double dt = 0.001 * std::pow(100.0, random.uniform());
      return static_cast<float>(dt + std::log(-std::expm1(-dt)));
    }
    default:
      return recipe.mean + recipe.scale * random.normal();
  }
}

// ---- writing ---------------------------------------------------------------------------------

constexpr uint64_t kBlock = 1u << 20;  // elements that one generator makes

void fill(const SafetensorsWriter &writer, const std::vector<Recipe> &recipes, uint64_t seed,
          size_t threads, const std::function<void(uint64_t, uint64_t)> &progress) {
  struct Block {
    size_t tensor;
    uint64_t first, count;
  };
  std::vector<Block> blocks;
  for (size_t i = 0; i < writer.tensors().size(); ++i) {
    const OutputTensor &tensor = writer.tensors()[i];
    const uint64_t elements = tensor.bytes() / backend::size_of(tensor.dtype);
    for (uint64_t first = 0; first < elements; first += kBlock) {
      blocks.push_back({i, first, std::min(kBlock, elements - first)});
    }
  }
  std::atomic<uint64_t> done{0};
  std::mutex mutex;
  run_on_workers(blocks.size(), threads, [&](size_t b) {
    const Block &block = blocks[b];
    const OutputTensor &tensor = writer.tensors()[block.tensor];
    const size_t size = backend::size_of(tensor.dtype);
    thread_local std::vector<std::byte> buffer;  // kept: fresh pages cost time
    buffer.resize(block.count * size);
    Random mixed(seed);
    Random random(mixed.next() ^
                  Random((uint64_t{block.tensor} << 32) + block.first / kBlock).next());
    for (uint64_t i = 0; i < block.count; ++i) {
      const float x = value(random, recipes[block.tensor]);
      if (tensor.dtype == backend::Dtype::bf16) {
        const uint16_t half = backend::to_bf16(x);
        std::memcpy(buffer.data() + i * size, &half, size);
      } else {
        std::memcpy(buffer.data() + i * size, &x, size);
      }
    }
    writer.write(block.tensor, block.first * size, buffer);
    const uint64_t now = done.fetch_add(block.count * size) + block.count * size;
    if (progress) {
      const std::lock_guard lock(mutex);
      progress(now, writer.bytes());
    }
  });
}

struct Contents {
  std::vector<OutputTensor> tensors;
  std::vector<Recipe> recipes;
  void add(std::string name, backend::Dtype dtype, std::vector<uint64_t> shape, Recipe how) {
    tensors.push_back({std::move(name), dtype, std::move(shape)});
    recipes.push_back(how);
  }
};

void add_model(const model::Config &config, const std::string &prefix, Contents &contents) {
  for (const model::TensorSpec &spec : model::tensors(config)) {
    // These two are F32 in the public checkpoint.
    const bool wide =
        ends_with(spec.name, "A_log") || ends_with(spec.name, "linear_attn.norm.weight");
    contents.add(prefix + spec.name, wide ? backend::Dtype::f32 : backend::Dtype::bf16, spec.shape,
                 recipe(spec, config.layers.size()));
  }
}

// Of about the public checkpoint's size where `large`; nobody reads them.
void add_vision_and_prediction(const model::Config &config, bool large, Contents &contents) {
  const uint64_t width = large ? 1024 : 16, H = config.hidden, I = config.intermediate;
  const Recipe how{Kind::normal, 0, 0.02f};
  const auto add = [&](const std::string &name, std::vector<uint64_t> shape) {
    contents.add(name, backend::Dtype::bf16, std::move(shape), how);
  };
  for (size_t block = 0; block < (large ? 24 : 2); ++block) {
    const std::string at = "model.visual.blocks." + std::to_string(block) + ".";
    add(at + "attn.qkv.weight", {3 * width, width});
    add(at + "attn.proj.weight", {width, width});
    add(at + "mlp.linear_fc1.weight", {4 * width, width});
    add(at + "mlp.linear_fc2.weight", {width, 4 * width});
  }
  add("mtp.fc.weight", {H, 2 * H});
  add("mtp.layers.0.self_attn.q_proj.weight", {2 * uint64_t{config.heads} * config.head_dim, H});
  add("mtp.layers.0.self_attn.o_proj.weight", {H, uint64_t{config.heads} * config.head_dim});
  add("mtp.layers.0.mlp.gate_proj.weight", {I, H});
  add("mtp.layers.0.mlp.up_proj.weight", {I, H});
  add("mtp.layers.0.mlp.down_proj.weight", {H, I});
}

// Factors for the projections of attention and of the MLPs, as the public adapter has them.
void add_adapter(const model::Config &config, Contents &contents) {
  for (const model::TensorSpec &spec : model::tensors(config)) {
    const bool target = spec.shape.size() == 2 && (spec.name.find(".mlp.") != spec.name.npos ||
                                                   spec.name.find(".self_attn.") != spec.name.npos);
    if (!target) continue;
    const std::string module =
        "base_model.model.model." + spec.name.substr(0, spec.name.size() - sizeof ".weight" + 1);
    const float unit = 1 / std::sqrt(static_cast<float>(spec.shape[1]));
    contents.add(module + ".lora_A.weight", backend::Dtype::f32, {kRank, spec.shape[1]},
                 {Kind::normal, 0, unit});
    contents.add(module + ".lora_B.weight", backend::Dtype::f32, {spec.shape[0], kRank},
                 {Kind::normal, 0, 0.02f});
  }
}

void write_json(const fs::path &path, const json::object &object) {
  write_text(path, json::serialize(object) + "\n");
}

}  // namespace

void write_synthetic(const SyntheticOptions &options) try {
  model::Config config = config_of(options.shape);
  if (options.least_vocabulary > config.vocabulary) {
    config.vocabulary = (options.least_vocabulary + 63) / 64 * 64;
  }
  const bool large = options.shape == "4b";
  Staging staging(options.out);
  const fs::path &folder = staging.path();
  Contents contents;
  std::string stem = "model";
  switch (options.kind) {
    case SyntheticKind::merged:
      add_model(config, "model.", contents);
      write_json(folder / "config.json", config_json(config));
      write_json(folder / kMarkerFile,
                 {{"format", kMarkerFormat},
                  {"model", "synthetic/" + options.shape + "-" + std::to_string(options.seed)},
                  {"note", "random weights: the answers mean nothing"}});
      break;
    case SyntheticKind::base:
      add_model(config, "model.language_model.", contents);
      add_vision_and_prediction(config, large, contents);
      write_json(folder / "config.json", base_config_json(config));
      if (large) stem = "model.safetensors";  // the public shards are called so
      break;
    case SyntheticKind::adapter:
      add_adapter(config, contents);
      write_json(folder / "adapter_config.json", adapter_config_json());
      stem = "adapter_model";
      break;
  }
  {
    const SafetensorsWriter writer(folder, std::move(contents.tensors), stem);
    fill(writer, contents.recipes, options.seed, options.threads, options.progress);
  }
  for (const fs::path &copy : options.copies) fs::copy_file(copy, folder / copy.filename());
  staging.commit();
} catch (const fs::filesystem_error &error) {
  throw Error(CUA_INTERNAL, error.what());
}

}  // namespace cua::checkpoint
