// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json.hpp>
#include <boost/program_options.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "checkpoint/checkpoint.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/marker.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors.h"
#include "error.h"
#include "model/tensors.h"
#include "tools/export_command.h"

namespace cua::tools {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
namespace po = boost::program_options;
using checkpoint::printable;

// Files, tensors and bytes of every safetensors file, tensors of no use to the text model too.
json::object storage(const fs::path &folder) {
  std::vector<fs::path> files;
  for (const auto &entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  json::object dtypes;
  json::array names;
  uint64_t tensors = 0, bytes = 0;
  for (const fs::path &path : files) {
    const checkpoint::SafetensorsFile file(path);
    names.emplace_back(path.filename().string());
    for (const auto &[name, entry] : file.header()) {
      ++tensors;
      bytes += entry.end - entry.begin;
      json::value &count = dtypes[entry.dtype];
      count = count.is_null() ? int64_t{1} : count.as_int64() + 1;
    }
  }
  return {{"files", names}, {"tensors", tensors}, {"bytes", bytes}, {"dtypes", dtypes}};
}

json::object describe_adapter(const fs::path &folder) {
  const json::object config = checkpoint::read_json_object(folder / "adapter_config.json");
  json::object about{{"kind", "adapter"}, {"storage", storage(folder)}};
  for (const char *name :
       {"peft_type", "r", "lora_alpha", "target_modules", "base_model_name_or_path"}) {
    about[name] = config.contains(name) ? config.at(name) : json::value(nullptr);
  }
  return about;
}

json::object describe_model(const fs::path &folder) {
  const checkpoint::Checkpoint checkpoint(folder, checkpoint::MarkerPolicy::optional);
  const model::Config &c = checkpoint.config();
  uint64_t parameters = 0;
  for (const model::TensorSpec &spec : model::tensors(c)) {
    parameters += checkpoint.tensor(spec.name).elements();
  }
  const bool merged = checkpoint::has_entry(folder / checkpoint::kMarkerFile);
  const auto attention = std::count(c.layers.begin(), c.layers.end(), model::LayerKind::attention);
  json::object about{{"kind", merged ? "merged" : "base"},
                     {"text_parameters", parameters},
                     {"layers", c.layers.size()},
                     {"attention_layers", attention},
                     {"hidden", c.hidden},
                     {"intermediate", c.intermediate},
                     {"vocabulary", c.vocabulary},
                     {"heads", c.heads},
                     {"kv_heads", c.kv_heads},
                     {"head_dim", c.head_dim},
                     {"gdn_key_heads", c.gdn_key_heads},
                     {"gdn_value_heads", c.gdn_value_heads},
                     {"gdn_head_dim", c.gdn_value_dim},
                     {"tokenizer", checkpoint.tokenizer_json().has_value()},
                     {"storage", storage(folder)}};
  if (merged) {
    about["model"] = checkpoint.model_id() ? json::value(*checkpoint.model_id()) : nullptr;
    about["marker"] = checkpoint::read_json_object(folder / checkpoint::kMarkerFile);
  }
  return about;
}

std::string text_of(const json::value &value) {
  return printable(value.is_string() ? std::string(value.as_string()) : json::serialize(value));
}

void print_storage(const json::object &storage) {
  std::string dtypes;
  for (const auto &[name, count] : storage.at("dtypes").as_object()) {
    dtypes += (dtypes.empty() ? "" : ", ") + text_of(count) + " " + std::string(name);
  }
  std::printf("files: %zu of safetensors, %s tensors (%s), %.3f GB\n",
              storage.at("files").as_array().size(), text_of(storage.at("tensors")).c_str(),
              dtypes.c_str(), storage.at("bytes").to_number<double>() * 1e-9);
}

void print_words(const fs::path &folder, const json::object &about) {
  const auto say = [&](const char *name) { return text_of(about.at(name)); };
  if (about.at("kind") == "adapter") {
    std::printf("%s: a %s adapter of rank %s, alpha %s, for %s\ntargets: %s\n", folder.c_str(),
                say("peft_type").c_str(), say("r").c_str(), say("lora_alpha").c_str(),
                say("base_model_name_or_path").c_str(), say("target_modules").c_str());
    print_storage(about.at("storage").as_object());
    std::printf("To use it: cua-export merge --base BASE --adapter %s --out OUT\n", folder.c_str());
    return;
  }
  const bool merged = about.at("kind") == "merged";
  std::printf("%s: %s\n", folder.c_str(),
              merged ? "a merged checkpoint, which the worker takes"
                     : "a base model (it has no marker); the worker refuses it until an adapter is "
                       "merged into it");
  if (merged) {
    const json::object &marker = about.at("marker").as_object();
    std::printf("model: %s\n", about.at("model").is_null()
                                   ? "not named: answers carry the worker's own name for it"
                                   : say("model").c_str());
    for (const char *part : {"base", "adapter"}) {
      const json::value *const object = marker.if_contains(part);
      if (object == nullptr || !object->is_object()) continue;
      const json::value *const revision = object->as_object().if_contains("revision");
      std::printf(
          "%s: revision %s\n", part,
          revision == nullptr || revision->is_null() ? "unknown" : text_of(*revision).c_str());
    }
    if (const json::value *const tool = marker.if_contains("tool_version")) {
      std::printf("merged by: cua-export %s\n", text_of(*tool).c_str());
    }
  }
  std::printf(
      "text model: %.3f billion parameters, %s layers (%s of attention), hidden %s, MLP %s, "
      "vocabulary %s\n",
      about.at("text_parameters").to_number<double>() * 1e-9, say("layers").c_str(),
      say("attention_layers").c_str(), say("hidden").c_str(), say("intermediate").c_str(),
      say("vocabulary").c_str());
  std::printf(
      "attention: %s heads, %s KV heads of %s; Gated DeltaNet: %s key heads, %s value heads "
      "of %s\n",
      say("heads").c_str(), say("kv_heads").c_str(), say("head_dim").c_str(),
      say("gdn_key_heads").c_str(), say("gdn_value_heads").c_str(), say("gdn_head_dim").c_str());
  print_storage(about.at("storage").as_object());
  std::printf("tokenizer: %s\n", about.at("tokenizer").as_bool() ? "tokenizer.json" : "none");
}

}  // namespace

int export_info(int argc, const char *const *argv) {
  std::string folder;
  bool as_json = false;
  po::options_description flags("Tells what a model folder is: cua-export info DIR");
  flags.add_options()("json", po::bool_switch(&as_json), "as JSON")("help", "show this and stop");
  po::options_description all = flags;
  all.add_options()("dir", po::value(&folder));
  po::positional_options_description places;
  places.add("dir", 1);
  try {
    const auto style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::variables_map given;
    po::store(
        po::command_line_parser(argc, argv).options(all).positional(places).style(style).run(),
        given);
    if (given.count("help") != 0) {
      std::cout << flags;
      return 0;
    }
    po::notify(given);
  } catch (const po::error &error) {
    throw UsageError(error.what());
  }
  if (folder.empty()) throw UsageError("name a folder");
  if (!fs::is_directory(folder)) {
    throw Error(CUA_BAD_MODEL, folder + ": is not a folder that can be read");
  }
  const json::object about = checkpoint::has_entry(fs::path(folder) / "adapter_config.json")
                                 ? describe_adapter(folder)
                                 : describe_model(folder);
  if (as_json) {
    std::cout << json::serialize(about) << '\n';
  } else {
    print_words(folder, about);
  }
  return 0;
}

}  // namespace cua::tools
