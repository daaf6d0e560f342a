// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <vector>

#include "checkpoint/config_json.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/marker.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors.h"
#include "error.h"
#include "model/tensors.h"

namespace cua::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr char kSingleFile[] = "model.safetensors";
constexpr size_t kLargestConfig = size_t{4} << 20;  // bytes

[[noreturn]] void fail(const fs::path &path, const std::string &what) {
  throw Error(CUA_BAD_MODEL, path.string() + ": " + what);
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// The canonical name of a tensor, or nullopt where the text model has no use for it.
std::optional<std::string> canonical(std::string_view name) {
  if (starts_with(name, "model.visual.") || starts_with(name, "mtp.")) return std::nullopt;
  for (const std::string_view prefix : {"model.language_model.", "model."}) {
    if (starts_with(name, prefix)) return std::string(name.substr(prefix.size()));
  }
  return std::string(name);
}

// The shards of a folder and which tensors the index puts in each; one of that name where there is
// no index, with nothing put.
using Shards = std::map<std::string, std::vector<std::string>>;

Shards read_shards(const fs::path &folder) {
  const fs::path index_path = folder / kIndexFile;
  if (!has_entry(index_path)) {
    if (!has_entry(folder / kSingleFile)) {
      fail(folder, std::string("has neither ") + kSingleFile + " nor " + kIndexFile +
                       "; give the folder of a merged checkpoint");
    }
    return {{kSingleFile, {}}};
  }
  const boost::json::object object = read_json_object(index_path);
  const Fields fields(object, index_path.string());
  const boost::json::object *const map = fields.object("weight_map");
  if (map == nullptr || map->empty()) fields.fail("weight_map", "is missing or empty");
  const auto tensor = [](std::string_view name) { return "tensor " + printable(name); };
  Shards shards;
  for (const auto &[name, file] : *map) {
    if (!file.is_string()) {
      fields.fail("weight_map", "gives no file name for " + tensor(name));
    }
    const std::string shard(file.as_string());
    if (shard.empty() || shard == "." || shard == ".." || shard.find('/') != shard.npos ||
        shard.find('\0') != shard.npos) {
      fields.fail("weight_map", "names the file \"" + printable(shard) + "\" for " + tensor(name) +
                                    ", which is not one of this folder");
    }
    shards[shard].emplace_back(name);
  }
  // Transformers would take the file of that name, and not what the index names.
  if (has_entry(folder / kSingleFile) && shards.count(kSingleFile) == 0) {
    fail(folder, std::string("has ") + kSingleFile + " and an index, " + kIndexFile +
                     ", that does not name it; remove the one that is out of date");
  }
  return shards;
}

}  // namespace

struct Checkpoint::Impl {
  fs::path folder;
  std::optional<Marker> marker;
  model::Config config;
  std::vector<SafetensorsFile> files;
  std::map<std::string, backend::HostTensor, std::less<>> tensors;  // by canonical name

  void open(const fs::path &path, MarkerPolicy policy) {
    folder = path;
    std::error_code error;
    if (!fs::exists(folder, error)) {
      fail(folder, error ? "cannot be examined: " + error.message()
                         : "does not exist; give the folder of a merged checkpoint");
    }
    if (!fs::is_directory(folder, error)) fail(folder, "is not a folder");
    marker = read_marker(folder);
    if (!marker && policy == MarkerPolicy::required) {
      fail(folder, std::string("has no ") + kMarkerFile +
                       ": this is not a merged checkpoint (a base model, perhaps); merge the "
                       "adapter into it with `cua-export merge`");
    }
    const fs::path config_path = folder / "config.json";
    config = parse_config(read_text(config_path, kLargestConfig), config_path.string());
    map_tensors();
  }

  void map_tensors() {
    std::map<std::string, std::string> found_in;  // canonical name to file
    for (auto &[shard, listed] : read_shards(folder)) {
      const fs::path path = folder / shard;
      if (!has_entry(path)) {
        fail(path, "is missing; the index lists " + std::to_string(listed.size()) +
                       " tensors in it, the first " + printable(listed.front()));
      }
      const SafetensorsFile &file = files.emplace_back(path);
      for (const std::string &name : listed) {
        if (file.header().find(name) == file.header().end()) {
          fail(path,
               "tensor " + printable(name) + ": the index puts it here, but the file lacks it");
        }
      }
      if (!listed.empty() && listed.size() != file.header().size()) {
        std::sort(listed.begin(), listed.end());
        for (const auto &[name, entry] : file.header()) {
          if (!std::binary_search(listed.begin(), listed.end(), name)) {
            fail(path, "tensor " + printable(name) + ": the index does not list it");
          }
        }
      }
      for (const auto &[name, entry] : file.header()) {
        const auto known = canonical(name);
        if (!known) continue;
        const auto [at, fresh] = found_in.emplace(*known, path.string());
        if (!fresh) fail(path, "tensor " + printable(name) + ": it is also in " + at->second);
        pending_.push_back({*known, name, files.size() - 1});
      }
    }
    std::map<std::string, const Pending *, std::less<>> by_name;
    for (const Pending &pending : pending_) by_name.emplace(pending.canonical, &pending);
    for (const model::TensorSpec &spec : model::tensors(config)) {
      const auto at = by_name.find(spec.name);
      if (at == by_name.end()) fail(folder, "tensor " + spec.name + " is missing");
      const Pending &pending = *at->second;
      const SafetensorsFile &file = files[pending.file];
      const SafetensorsEntry &entry = file.header().at(pending.name);
      if (entry.shape != spec.shape) {
        fail(found_in.at(spec.name), "tensor " + pending.name + ": its shape is " +
                                         words(entry.shape) + ", config.json asks for " +
                                         words(spec.shape));
      }
      tensors.emplace(spec.name, file.tensor(pending.name));
      by_name.erase(at);
    }
    if (!by_name.empty()) {
      const Pending &extra = *by_name.begin()->second;
      fail(found_in.at(extra.canonical),
           "tensor " + printable(extra.name) +
               (extra.canonical == "lm_head.weight"
                    ? ": tied to embed_tokens.weight by config.json, so it would not be read; "
                      "remove "
                      "it, or save the model with its embeddings tied"
                    : ": the model that config.json describes has no such tensor"));
    }
    pending_.clear();
  }

 private:
  struct Pending {
    std::string canonical, name;
    size_t file;
  };
  std::vector<Pending> pending_;
};

Checkpoint::Checkpoint(const std::filesystem::path &folder, MarkerPolicy marker)
    : impl_(std::make_unique<Impl>()) {
  impl_->open(folder, marker);
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint &&) noexcept = default;
Checkpoint &Checkpoint::operator=(Checkpoint &&) noexcept = default;

const model::Config &Checkpoint::config() const { return impl_->config; }

const backend::HostTensor &Checkpoint::tensor(std::string_view name) const {
  const auto at = impl_->tensors.find(name);
  if (at == impl_->tensors.end()) {
    throw Error(CUA_INTERNAL, "the model has no tensor " + std::string(name));
  }
  return at->second;
}

const std::optional<std::string> &Checkpoint::model_id() const {
  static const std::optional<std::string> none;
  return impl_->marker ? impl_->marker->model : none;
}

std::optional<std::filesystem::path> Checkpoint::tokenizer_json() const {
  const fs::path path = impl_->folder / "tokenizer.json";
  if (!has_entry(path)) return std::nullopt;
  return path;
}

}  // namespace cua::checkpoint
