// SPDX-License-Identifier: Apache-2.0
// What PEFT means by an adapter_config.json: its LoraConfig and LoraModel.
#include "tools/adapter.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <optional>

#include "checkpoint/json_fields.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors.h"
#include "error.h"
#include "model/tensors.h"
#include "tools/module_pattern.h"
#include "tools/tensor_values.h"

namespace cua::tools {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using checkpoint::Fields;
using checkpoint::printable;

constexpr char kConfigFile[] = "adapter_config.json";
constexpr char kWeightsFile[] = "adapter_model.safetensors";
constexpr uint32_t kMostRank = 1u << 16;

[[noreturn]] void fail(const fs::path &path, const std::string &what) {
  throw Error(CUA_BAD_MODEL, path.string() + ": " + what);
}

// Says nothing: null, false, empty.
bool is_empty(const json::value &value) {
  return value.is_null() || (value.is_bool() && !value.as_bool()) ||
         (value.is_string() && value.as_string().empty()) ||
         (value.is_array() && value.as_array().empty()) ||
         (value.is_object() && value.as_object().empty());
}

// Settings that a merge is free of: of training, of how the factors began, of where things lie.
constexpr const char *kFree[] = {
    "auto_mapping",    "base_model_name_or_path", "corda_config", "ensure_weight_tying",
    "eva_config",      "inference_mode",          "lora_dropout", "lora_ga_config",
    "megatron_config", "megatron_core",           "peft_version", "qalora_group_size",
    "revision",        "runtime_config",          "task_type",    "layers_pattern"};
// Settings that are read below.
constexpr const char *kRead[] = {
    "peft_type",      "r",    "lora_alpha",     "rank_pattern",     "alpha_pattern", "use_rslora",
    "fan_in_fan_out", "bias", "target_modules", "init_lora_weights"};

template <size_t N>
bool is_one_of(std::string_view name, const char *const (&names)[N]) {
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char *one) { return name == one; });
}

// A positive number of a pattern, as PEFT takes it: the first key that ends the module's name.
class Patterns {
 public:
  Patterns(const Fields &fields, const char *name) {
    const json::object *const object = fields.object(name);
    if (object == nullptr) return;
    for (const auto &[key, value] : *object) {
      double number = 0;
      if (value.is_number()) number = value.to_number<double>();
      if (!(number > 0) || !std::isfinite(number)) {
        fields.fail(name, "gives " + printable(json::serialize(value)) + " for " + printable(key) +
                              "; a number above 0 is needed");
      }
      entries_.emplace_back(ModulePattern("(.*\\.)?(" + std::string(key) + ")", name), number);
    }
  }
  std::optional<double> find(const std::string &module) const {
    for (const auto &[pattern, number] : entries_) {
      if (pattern.matches(module)) return number;
    }
    return std::nullopt;
  }

 private:
  std::vector<std::pair<ModulePattern, double>> entries_;
};

// Which modules the adapter is for.
class Targets {
 public:
  explicit Targets(const json::object &config, const Fields &fields) {
    const json::value *const value = config.if_contains("target_modules");
    if (value == nullptr || is_empty(*value)) fields.fail("target_modules", "is missing or empty");
    if (value->is_string()) {
      if (value->as_string() == "all-linear") {
        all_ = true;
      } else {
        pattern_.emplace(std::string(value->as_string()), "target_modules");
      }
      return;
    }
    if (!value->is_array()) fields.fail("target_modules", "is neither a list nor an expression");
    for (const json::value &name : value->as_array()) {
      if (!name.is_string() || name.as_string().empty()) {
        fields.fail("target_modules", "holds " + printable(json::serialize(name)) +
                                          ", which is not the name of a module");
      }
      names_.emplace_back(name.as_string());
    }
  }
  bool matches(const std::string &module) const {
    if (all_) return true;
    if (pattern_) return pattern_->matches(module);
    return std::any_of(names_.begin(), names_.end(), [&](const std::string &name) {
      return module == name ||
             (module.size() > name.size() &&
              module.compare(module.size() - name.size(), name.size(), name) == 0 &&
              module[module.size() - name.size() - 1] == '.');
    });
  }

 private:
  bool all_ = false;
  std::optional<ModulePattern> pattern_;
  std::vector<std::string> names_;
};

void check_finite(const fs::path &file, const std::string &key, const backend::HostTensor &tensor) {
  if (const auto i = first_not_finite(tensor, 0, tensor.elements())) {
    fail(file, "tensor " + printable(key) + ": element " + std::to_string(*i) +
                   " is not a finite number");
  }
}

bool take_end(std::string &text, std::string_view end) {
  if (text.size() < end.size() || text.compare(text.size() - end.size(), end.size(), end) != 0) {
    return false;
  }
  text.resize(text.size() - end.size());
  return true;
}

bool take_start(std::string &text, std::string_view start) {
  if (text.compare(0, start.size(), start) != 0) return false;
  text.erase(0, start.size());
  return true;
}

}  // namespace

struct Adapter::Impl {
  std::unique_ptr<checkpoint::SafetensorsFile> file;
  std::map<std::string, Factors, std::less<>> factors;
  std::vector<std::string> warnings;
  std::string base;
};

Adapter::Adapter(const fs::path &folder, const model::Config &model) : impl_(new Impl) {
  const fs::path config_path = folder / kConfigFile, weights_path = folder / kWeightsFile;
  if (!checkpoint::has_entry(folder)) fail(folder, "does not exist; give the folder of an adapter");
  if (!checkpoint::has_entry(config_path)) {
    fail(folder, std::string("has no ") + kConfigFile +
                     ": this is not a PEFT adapter (its folder may be one level further down)");
  }
  const json::object config = checkpoint::read_json_object(config_path);
  const Fields fields(config, config_path.string());

  const auto type = fields.text("peft_type");
  if (!type) fields.fail("peft_type", "is missing");
  if (*type != "LORA") {
    fields.unsupported("peft_type", "is \"" + printable(*type) + "\"; only LORA can be merged");
  }
  for (const auto &[name, value] : config) {
    if (is_empty(value) || is_one_of(name, kRead) || is_one_of(name, kFree)) continue;
    if (name == "modules_to_save") {
      fields.unsupported(name, "replaces whole modules, which a merge of LoRA cannot do");
    }
    if (name == "use_dora") fields.unsupported(name, "is set; DoRA is not supported");
    fields.unsupported(name, "is " + printable(json::serialize(value)) +
                                 "; this setting changes what the adapter means, and is not "
                                 "supported");
  }
  if (const auto bias = fields.text("bias"); bias && *bias != "none") {
    fields.unsupported("bias", "is \"" + printable(*bias) + "\"; only none is supported");
  }
  // These change the base model's own weights when training begins.
  if (const json::value *const init = config.if_contains("init_lora_weights")) {
    if (init->is_string() && init->as_string() != "gaussian" && init->as_string() != "eva" &&
        init->as_string() != "orthogonal") {
      fields.unsupported("init_lora_weights",
                         "is " + printable(json::serialize(*init)) +
                             ", which changes the base model's weights; not supported");
    }
  }
  if (fields.boolean("fan_in_fan_out") == true) {
    impl_->warnings.push_back(config_path.string() +
                              ": fan_in_fan_out is true; for linear layers, which all of these "
                              "are, PEFT does not heed it, and neither does this");
  }
  impl_->base = fields.text("base_model_name_or_path").value_or("");
  const uint32_t rank = fields.count("r", kMostRank);
  const auto alpha = fields.number("lora_alpha");
  if (!alpha) fields.fail("lora_alpha", "is missing");
  const bool rank_stabilised = fields.boolean("use_rslora") == true;
  const Patterns ranks(fields, "rank_pattern"), alphas(fields, "alpha_pattern");
  const Targets targets(config, fields);

  if (!checkpoint::has_entry(weights_path)) {
    fail(folder, std::string("has no ") + kWeightsFile +
                     (checkpoint::has_entry(folder / "adapter_model.bin")
                          ? "; adapter_model.bin is a pickle, which can hold programs: save the "
                            "adapter as safetensors"
                          : ""));
  }
  impl_->file = std::make_unique<checkpoint::SafetensorsFile>(weights_path);
  std::map<std::string, std::vector<uint64_t>, std::less<>> weights;
  for (const model::TensorSpec &spec : model::tensors(model)) {
    if (spec.shape.size() == 2) weights.emplace(spec.name, spec.shape);
  }

  struct Half {
    std::string key;
    backend::HostTensor tensor;
  };
  struct Found {
    std::string module;  // as PEFT calls it, for patterns
    std::optional<Half> a, b;
  };
  std::map<std::string, Found, std::less<>> found;  // by canonical weight
  for (const auto &[key, entry] : impl_->file->header()) {
    const auto refuse = [&, &name = key](const std::string &what) {
      fail(weights_path, "tensor " + printable(name) + ": " + what);
    };
    std::string module = key;
    const bool is_a = take_end(module, ".lora_A.weight");
    if (!is_a && !take_end(module, ".lora_B.weight")) {
      refuse("is not a factor of LoRA (.lora_A.weight or .lora_B.weight)");
    }
    if (!take_start(module, "base_model.model.")) refuse("does not begin with base_model.model.");
    std::string canonical = module;
    if (!take_start(canonical, "model.language_model.") && !take_start(canonical, "model.")) {
      refuse("fits no weight of the base model");
    }
    canonical += ".weight";
    if (weights.find(canonical) == weights.end()) refuse("fits no weight of the base model");
    if (!targets.matches(module)) {
      refuse("target_modules of " + config_path.string() + " does not name this module");
    }
    Found &one = found[canonical];
    one.module = module;
    std::optional<Half> &half = is_a ? one.a : one.b;
    if (half) refuse("is for the same weight as " + half->key);
    half = Half{key, impl_->file->tensor(key)};
  }
  if (found.empty()) fail(weights_path, "holds no factors");

  for (const auto &[name, one] : found) {
    const auto &shape = weights.at(name);
    if (!one.a || !one.b) {
      fail(weights_path, "tensor " + printable((one.a ? one.a : one.b)->key) + ": lora_" +
                             (one.a ? "B" : "A") + " of this module is missing");
    }
    const double pattern_rank = ranks.find(one.module).value_or(rank);
    const auto expect = [&](const Half &half, const std::vector<uint64_t> &wanted) {
      if (half.tensor.shape == wanted) return;
      fail(weights_path, "tensor " + printable(half.key) + ": its shape is " +
                             checkpoint::words(half.tensor.shape) + ", a rank of " +
                             std::to_string(static_cast<uint64_t>(pattern_rank)) +
                             " and a base weight of " + checkpoint::words(shape) + " ask for " +
                             checkpoint::words(wanted) + "; is this the adapter of another model?");
    };
    const auto whole_rank = static_cast<uint64_t>(pattern_rank);
    if (static_cast<double>(whole_rank) != pattern_rank || pattern_rank > kMostRank) {
      fields.fail("rank_pattern", "gives a rank that is not a whole number for " + one.module);
    }
    expect(*one.a, {whole_rank, shape[1]});
    expect(*one.b, {shape[0], whole_rank});
    check_finite(weights_path, one.a->key, one.a->tensor);
    check_finite(weights_path, one.b->key, one.b->tensor);
    const double scale = alphas.find(one.module).value_or(*alpha) /
                         (rank_stabilised ? std::sqrt(pattern_rank) : pattern_rank);
    if (!std::isfinite(static_cast<float>(scale))) {
      fields.fail("lora_alpha", "gives " + one.module + " a scale that is no number");
    }
    impl_->factors[name] = {one.a->tensor, one.b->tensor, static_cast<float>(scale)};
  }
  // As PEFT would call the modules of the file's own layout.
  const std::string &some = found.begin()->second.module;
  const std::string prefix =
      some.compare(0, 21, "model.language_model.") == 0 ? "model.language_model." : "model.";
  for (const auto &[name, shape] : weights) {
    std::string module = prefix + name;
    take_end(module, ".weight");
    if (name != "embed_tokens.weight" && targets.matches(module) && found.count(name) == 0) {
      fail(weights_path, "has no factors for " + module + ", which target_modules of " +
                             config_path.string() + " names");
    }
  }
}

Adapter::~Adapter() = default;

const std::map<std::string, Factors, std::less<>> &Adapter::factors() const {
  return impl_->factors;
}
const std::vector<std::string> &Adapter::warnings() const { return impl_->warnings; }
const std::string &Adapter::base() const { return impl_->base; }

}  // namespace cua::tools
