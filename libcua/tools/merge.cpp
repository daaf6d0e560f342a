// SPDX-License-Identifier: Apache-2.0
#include "tools/merge.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>
#include <span>

#include "checkpoint/checkpoint.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/marker.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/staging.h"
#include "checkpoint/workers.h"
#include "error.h"
#include "model/tensors.h"
#include "tools/adapter.h"
#include "tools/bench_measure.h"
#include "tools/lora_rows.h"
#include "tools/pinned.h"
#include "tools/progress.h"
#include "tools/sha256.h"
#include "tools/tensor_values.h"

namespace cua::tools {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using backend::Dtype;
using backend::HostTensor;

constexpr uint64_t kBlockBytes = uint64_t{8} << 20;  // of output that one task makes

std::vector<float> widened(const HostTensor &tensor) {
  std::vector<float> values(tensor.elements());
  for (uint64_t i = 0; i < values.size(); ++i) values[i] = value_at(tensor, i);
  return values;
}

// The base's config.json as one of the text model alone.
json::object text_config(const fs::path &base) {
  json::object root = checkpoint::read_json_object(base / "config.json");
  json::object config = root;
  if (const json::value *const nested = root.if_contains("text_config");
      nested != nullptr && nested->is_object()) {
    config = nested->as_object();
    if (const json::value *const version = root.if_contains("transformers_version")) {
      config.emplace("transformers_version", *version);
    }
  }
  config["architectures"] = {"Qwen3_5ForCausalLM"};
  config["model_type"] = "qwen3_5_text";
  config["tie_word_embeddings"] = true;
  config["dtype"] = "bfloat16";
  config.erase("torch_dtype");
  config.erase("quantization_config");
  return config;
}

// One tensor of the output: what it is made of.
struct Source {
  const HostTensor *base;
  const Factors *factors;   // nullptr: unchanged
  std::vector<float> a, b;  // widened; filled by the task that comes first
  std::once_flag once;
};

// Rows [first, first + count) of a tensor, as its file will hold them.
void make_rows(Source &source, Dtype dtype, uint64_t first, uint64_t count, uint64_t width,
               const std::string &name, std::vector<std::byte> &out) {
  const HostTensor &base = *source.base;
  const size_t size = backend::size_of(dtype);
  out.resize(count * width * size);
  if (source.factors == nullptr && base.dtype == dtype) {
    std::memcpy(out.data(), base.data + first * width * size, out.size());
    return;
  }
  const Factors *const factors = source.factors;
  if (factors != nullptr) {
    std::call_once(source.once, [&] {
      source.a = widened(factors->a);
      source.b = widened(factors->b);
    });
  }
  std::vector<float> w(width), merged(width);
  for (uint64_t row = 0; row < count; ++row) {
    for (uint64_t i = 0; i < width; ++i) w[i] = value_at(base, (first + row) * width + i);
    if (factors != nullptr) {
      const uint64_t rank = factors->a.shape[0];
      add_lora_row(w.data(), source.a.data(), width, source.b.data() + (first + row) * rank, rank,
                   factors->scale, width, merged.data());
      w.swap(merged);
    }
    for (uint64_t i = 0; i < width; ++i) {
      const uint16_t half = backend::to_bf16(w[i]);
      if (!std::isfinite(backend::from_bf16(half))) {
        throw Error(CUA_BAD_MODEL, "tensor " + name + ": element " +
                                       std::to_string((first + row) * width + i) +
                                       " is not finite in bf16" +
                                       (factors != nullptr ? " once the adapter is merged" : ""));
      }
      std::memcpy(out.data() + (row * width + i) * 2, &half, 2);
    }
  }
}

// Files of a folder that its model is read from.
std::vector<fs::path> files_of(const fs::path &folder, std::initializer_list<const char *> names) {
  std::vector<fs::path> files;
  for (const auto &entry : fs::directory_iterator(folder)) {
    const bool wanted = entry.path().extension() == ".safetensors" ||
                        std::any_of(names.begin(), names.end(), [&](const char *name) {
                          return entry.path().filename() == name;
                        });
    if (wanted && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// For the marker: size and SHA-256 by file name, in the order of the files.
json::object to_json(std::span<const fs::path> files, std::span<const FileHash> hashes) {
  json::object object;
  for (size_t i = 0; i < files.size(); ++i) {
    object[files[i].filename().string()] = {{"size", hashes[i].size}, {"sha256", hashes[i].sha256}};
  }
  return object;
}

// Empty: the worker's own name, which is that of the pinned adapter. sha256: of the factors' file.
std::string model_id(const MergeOptions &options, const std::string &revision,
                     const std::string &sha256) {
  if (!options.model_id.empty()) return options.model_id;
  const std::vector<Artifact> lock = read_lock("");
  const Artifact &pinned = *std::find_if(lock.begin(), lock.end(), [](const Artifact &artifact) {
    return artifact.role == "adapter";
  });
  if (revision == pinned.revision) return "";
  if (!revision.empty()) {
    return pinned.repository + "@" + revision + ":" + folder_name(options.adapter);
  }
  const bool is_pinned = sha256 == pinned.files.at("text/adapter_model.safetensors").sha256;
  return is_pinned ? "" : "adapter-sha256:" + sha256;
}

bool is_revision(const std::string &text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// Throws where the folder to be made is, holds or lies within one that is read: replacing it would
// remove what the merge was made from.
void check_apart(const fs::path &out, const fs::path &input) {
  const auto real = [](const fs::path &folder) {
    const fs::path path = fs::weakly_canonical(fs::absolute(folder));
    return path.has_filename() ? path : path.parent_path();
  };
  const fs::path a = real(out), b = real(input);
  const auto [end_a, end_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (end_a == a.end() || end_b == b.end()) {
    throw Error(CUA_INVALID_ARGUMENT, out.string() + ": is, holds or lies within " +
                                          input.string() + ", which is read; name another folder");
  }
}

json::value or_null(const std::string &text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

}  // namespace

std::string downloaded_revision(const fs::path &folder, const std::string &file) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(folder, error);
  if (error) return "";
  // --local-dir keeps .cache/huggingface/download/PATH.metadata, whose first line is the commit.
  fs::path relative = file;
  for (fs::path above = real; above.has_filename(); above = above.parent_path()) {
    std::ifstream metadata(above / ".cache/huggingface/download" /
                           (relative.string() + ".metadata"));
    std::string line;
    if (metadata && std::getline(metadata, line) && is_revision(line)) return line;
    relative = above.filename() / relative;
  }
  // The shared cache keeps snapshots/COMMIT/PATH.
  const fs::path absolute = fs::absolute(folder).lexically_normal();
  for (const fs::path &path : {absolute, real}) {
    for (auto part = path.begin(); part != path.end(); ++part) {
      if (*part != "snapshots") continue;
      const auto next = std::next(part);
      if (next != path.end() && is_revision(next->string())) return next->string();
    }
  }
  return "";
}

Merged merge(const MergeOptions &options) try {
  const auto warn = [&](const std::string &line) {
    if (options.warn) options.warn(line);
  };
  check_apart(options.out, options.base);
  check_apart(options.out, options.adapter);
  if (checkpoint::has_entry(options.base / checkpoint::kMarkerFile)) {
    throw Error(CUA_BAD_MODEL, options.base.string() + ": is a merged folder already (it has " +
                                   checkpoint::kMarkerFile + "); give the base model's folder");
  }
  if (checkpoint::has_entry(options.base / "adapter_config.json")) {
    throw Error(CUA_BAD_MODEL, options.base.string() +
                                   ": is an adapter; give the base model's folder with --base");
  }
  const checkpoint::Checkpoint base(options.base, checkpoint::MarkerPolicy::optional);
  const Adapter adapter(options.adapter, base.config());
  for (const std::string &warning : adapter.warnings()) warn(warning);
  if (const fs::path said = adapter.base(); !said.empty()) {
    if (said.filename() != folder_name(options.base)) {
      warn(options.adapter.string() + ": was made for \"" + checkpoint::printable(said.string()) +
           "\", the base is " + options.base.string() + "; names and shapes fit");
    }
  }

  const std::vector<model::TensorSpec> specs = model::tensors(base.config());
  std::vector<checkpoint::OutputTensor> tensors;
  std::vector<std::unique_ptr<Source>> sources;
  Merged merged;
  for (const model::TensorSpec &spec : specs) {
    auto source = std::make_unique<Source>();
    source->base = &base.tensor(spec.name);
    const auto found = adapter.factors().find(spec.name);
    source->factors = found != adapter.factors().end() ? &found->second : nullptr;
    if (source->factors != nullptr) ++merged.changed;
    const bool rounded = source->factors != nullptr || options.transformers_bf16;
    tensors.push_back(
        {"model." + spec.name, rounded ? Dtype::bf16 : source->base->dtype, spec.shape});
    merged.bytes += tensors.back().bytes();
    sources.push_back(std::move(source));
  }
  merged.tensors = tensors.size();

  checkpoint::Staging staging(
      options.out, options.force ? checkpoint::Existing::replace : checkpoint::Existing::refuse);
  const fs::path &folder = staging.path();
  if (const fs::space_info space = fs::space(folder); space.available < merged.bytes) {
    throw Error(CUA_INTERNAL, options.out.string() + ": needs " +
                                  std::to_string(merged.bytes / 1'000'000 + 1) +
                                  " MB, the disk has " +
                                  std::to_string(space.available / 1'000'000) + " MB left");
  }
  {
    const checkpoint::SafetensorsWriter writer(folder, std::move(tensors));
    struct Block {
      size_t tensor;
      uint64_t first, count, width;  // rows, and elements of one
    };
    std::vector<Block> blocks;
    for (size_t i = 0; i < writer.tensors().size(); ++i) {
      const checkpoint::OutputTensor &tensor = writer.tensors()[i];
      const uint64_t elements = tensor.bytes() / backend::size_of(tensor.dtype);
      const uint64_t width = tensor.shape.size() == 2 ? tensor.shape[1] : elements;
      const uint64_t rows = elements / width;
      const uint64_t step =
          std::max<uint64_t>(1, kBlockBytes / (width * backend::size_of(tensor.dtype)));
      for (uint64_t first = 0; first < rows; first += step) {
        blocks.push_back({i, first, std::min(step, rows - first), width});
      }
    }
    Progress progress("merging", merged.bytes);
    checkpoint::run_on_workers(blocks.size(), options.threads, [&](size_t b) {
      const Block &block = blocks[b];
      const checkpoint::OutputTensor &tensor = writer.tensors()[block.tensor];
      thread_local std::vector<std::byte> data;  // kept: fresh pages cost as much as the merge
      make_rows(*sources[block.tensor], tensor.dtype, block.first, block.count, block.width,
                tensor.name, data);
      writer.write(block.tensor, block.first * block.width * backend::size_of(tensor.dtype), data);
      const HostTensor &read = *sources[block.tensor]->base;
      const size_t size = backend::size_of(read.dtype);
      checkpoint::forget_pages(
          {read.data + block.first * block.width * size, block.count * block.width * size});
      progress.add(data.size());
    });
    merged.merge_seconds = progress.seconds();
  }
  checkpoint::write_text(folder / "config.json", json::serialize(text_config(options.base)) + "\n");
  bool tokenizer = false;
  for (const char *name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json", "vocab.json", "merges.txt", "LICENSE"}) {
    if (!fs::exists(options.base / name)) continue;
    fs::copy_file(options.base / name, folder / name);
    tokenizer = tokenizer || name == std::string("tokenizer.json");
  }
  if (!tokenizer) {
    warn(options.base.string() +
         ": has no tokenizer.json; the merged folder will score token ids "
         "alone, and the worker needs text: copy tokenizer.json into it");
  }

  const auto base_files = files_of(options.base, {"config.json", "model.safetensors.index.json",
                                                  "tokenizer.json", "tokenizer_config.json"});
  const auto adapter_files = files_of(options.adapter, {"adapter_config.json"});
  std::vector<fs::path> files = base_files;
  files.insert(files.end(), adapter_files.begin(), adapter_files.end());
  const size_t inputs = files.size();
  for (const auto &entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin() + static_cast<ptrdiff_t>(inputs), files.end());
  std::vector<FileHash> hashes;
  merged.hash_seconds = seconds_of([&] { hashes = hash_files(files, "hashing", options.threads); });
  const auto about = [&](size_t first, size_t count) {
    return to_json(std::span(files).subspan(first, count), std::span(hashes).subspan(first, count));
  };
  const json::object adapter_hashes = about(base_files.size(), adapter_files.size());

  const std::string base_revision = !options.base_revision.empty()
                                        ? options.base_revision
                                        : downloaded_revision(options.base, "config.json");
  const std::string adapter_revision =
      !options.adapter_revision.empty()
          ? options.adapter_revision
          : downloaded_revision(options.adapter, "adapter_config.json");
  json::object marker{
      {"format", checkpoint::kMarkerFormat},
      {"tool", "cua-export"},
      {"tool_version", CUA_VERSION},
      {"transformers_bf16", options.transformers_bf16},
      {"base", {{"revision", or_null(base_revision)}, {"files", about(0, base_files.size())}}},
      {"adapter", {{"revision", or_null(adapter_revision)}, {"files", adapter_hashes}}},
      {"files", about(inputs, files.size() - inputs)}};
  const std::string factors(
      adapter_hashes.at("adapter_model.safetensors").at("sha256").as_string());
  if (const std::string id = model_id(options, adapter_revision, factors); !id.empty()) {
    marker["model"] = id;
  }
  checkpoint::write_text(folder / checkpoint::kMarkerFile, json::serialize(marker) + "\n");
  merged.sync_seconds = seconds_of([&] {
    staging.sync();
    if (stop_asked()) throw Stopped();
    staging.commit();
  });
  return merged;
} catch (const fs::filesystem_error &error) {
  throw Error(CUA_INTERNAL, error.what());
}

}  // namespace cua::tools
