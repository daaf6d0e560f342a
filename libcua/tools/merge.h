// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace cua::tools {

struct MergeOptions {
  std::filesystem::path base, adapter, out;
  std::string base_revision, adapter_revision;  // empty: from the folders' metadata, where present
  std::string model_id;                         // empty: see merged_model_id()
  bool transformers_bf16 = false;               // round what is F32, as the reference exporter does
  bool force = false;                           // replace what stands at `out`
  size_t threads = 0;                           // 0: all cores
  std::function<void(const std::string &)> warn;
};

struct Merged {
  size_t tensors = 0, changed = 0;  // of the output; of them, by the adapter
  uint64_t bytes = 0;               // of all tensors
  double merge_seconds = 0, hash_seconds = 0, sync_seconds = 0;
};

// Writes the text model of `base` with `adapter` merged in: W + scale * B A in fp32, rounded once
// to bf16, to nearest even. Nothing is left at `out` after an error. Throws Error that names the
// file, key or setting at fault; Stopped after a signal.
Merged merge(const MergeOptions &options);

// The commit that a folder was downloaded at, as huggingface_hub notes it beside the files or in
// the name of its cache; empty where nothing tells. `file`: one of the folder.
std::string downloaded_revision(const std::filesystem::path &folder, const std::string &file);

}  // namespace cua::tools
