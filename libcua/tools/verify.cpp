// SPDX-License-Identifier: Apache-2.0
#include "tools/verify.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "checkpoint/checkpoint.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/marker.h"
#include "checkpoint/printable.h"
#include "checkpoint/workers.h"
#include "error.h"
#include "model/tensors.h"
#include "tokenizer/tokenizer.h"
#include "tools/progress.h"
#include "tools/sha256.h"
#include "tools/tensor_values.h"

namespace cua::tools {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using checkpoint::printable;

[[noreturn]] void fail(const fs::path &path, const std::string &what) {
  throw Error(CUA_BAD_MODEL, path.string() + ": " + what);
}

// The files that the marker lists, against what is there.
void verify_hashes(const fs::path &folder, size_t threads,
                   const std::function<void(const std::string &)> &tell) {
  const fs::path marker_path = folder / checkpoint::kMarkerFile;
  const json::object marker = checkpoint::read_json_object(marker_path);
  const checkpoint::Fields fields(marker, marker_path.string());
  const json::object *const files = fields.object("files");
  if (files == nullptr) {
    tell("hashes: the marker has none (cua-export merge writes them); files cannot be compared");
    return;
  }
  struct Job {
    fs::path path;
    std::string sha256;
  };
  std::vector<Job> jobs;
  for (const auto &[name, about] : *files) {
    const json::value *const size =
        about.is_object() ? about.as_object().if_contains("size") : nullptr;
    const json::value *const hash =
        about.is_object() ? about.as_object().if_contains("sha256") : nullptr;
    if (size == nullptr || hash == nullptr || !hash->is_string() || !size->is_int64() ||
        std::string_view(name).find('/') != std::string_view::npos) {
      fields.fail("files", "is damaged at " + printable(name));
    }
    const fs::path path = folder / std::string(name);
    if (!checkpoint::has_entry(path)) fail(path, "is missing; the marker lists it");
    const auto bytes = static_cast<uint64_t>(size->as_int64());
    if (const uint64_t found = fs::file_size(path); found != bytes) {
      fail(path, "has " + std::to_string(found) + " bytes, the marker says " +
                     std::to_string(bytes) + ": it was cut or written over; merge again");
    }
    jobs.push_back({path, std::string(hash->as_string())});
  }
  std::set<fs::path> listed;
  for (const Job &job : jobs) listed.insert(job.path.filename());
  for (const auto &entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors" && listed.count(entry.path().filename()) == 0) {
      fail(entry.path(), "is not one of the files that the marker lists; merge again");
    }
  }
  std::vector<fs::path> paths;
  for (const Job &job : jobs) paths.push_back(job.path);
  const std::vector<FileHash> hashes = hash_files(paths, "hashing", threads);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (hashes[i].sha256 != jobs[i].sha256) {
      fail(jobs[i].path, "its SHA-256 is " + hashes[i].sha256 + ", the marker says " +
                             jobs[i].sha256 + ": it was changed or damaged; merge again");
    }
  }
  tell("hashes: " + std::to_string(jobs.size()) + " files are as the merge wrote them");
}

void verify_tensors(const checkpoint::Checkpoint &checkpoint, size_t threads,
                    const std::function<void(const std::string &)> &tell) {
  constexpr uint64_t kBlock = 4u << 20;  // elements
  struct Block {
    const std::string *name;
    const backend::HostTensor *tensor;
    uint64_t first, count;
  };
  const auto specs = model::tensors(checkpoint.config());
  std::vector<Block> blocks;
  uint64_t all = 0;
  size_t wide = 0;
  for (const model::TensorSpec &spec : specs) {
    const backend::HostTensor &tensor = checkpoint.tensor(spec.name);
    wide += tensor.dtype == backend::Dtype::f32;
    all += tensor.bytes();
    for (uint64_t first = 0; first < tensor.elements(); first += kBlock) {
      blocks.push_back({&spec.name, &tensor, first, std::min(kBlock, tensor.elements() - first)});
    }
  }
  Progress progress("reading", all);
  checkpoint::run_on_workers(blocks.size(), threads, [&](size_t i) {
    const Block &block = blocks[i];
    if (const auto at = first_not_finite(*block.tensor, block.first, block.first + block.count)) {
      throw Error(CUA_BAD_MODEL, "tensor " + *block.name + ": element " + std::to_string(*at) +
                                     " is not a finite number; merge again");
    }
    const size_t size = backend::size_of(block.tensor->dtype);
    checkpoint::forget_pages({block.tensor->data + block.first * size, block.count * size});
    progress.add(block.count * size);
  });
  tell("tensors: " + std::to_string(specs.size()) + " (" + std::to_string(specs.size() - wide) +
       " bf16, " + std::to_string(wide) + " F32), of the shapes that config.json asks for, finite");
}

}  // namespace

void verify_folder(const fs::path &folder, size_t threads,
                   const std::function<void(const std::string &)> &tell) {
  const checkpoint::Checkpoint checkpoint(folder);
  tell(std::string("marker: ") + checkpoint::kMarkerFormat +
       (checkpoint.model_id() ? ", model " + printable(*checkpoint.model_id()) : ""));
  verify_hashes(folder, threads, tell);
  verify_tensors(checkpoint, threads, tell);
  const auto tokenizer_json = checkpoint.tokenizer_json();
  if (!tokenizer_json) {
    tell(
        "tokenizer: there is no tokenizer.json; the library takes token ids alone, and the worker "
        "refuses this folder");
    return;
  }
  const tokenizer::Tokenizer tokenizer(*tokenizer_json);
  const auto letters = tokenizer.letters();
  for (uint32_t i = 0; i < letters.size(); ++i) {
    if (letters[i] != 32 + i) {
      fail(*tokenizer_json, std::string("the letter ") + static_cast<char>('A' + i) + " is token " +
                                std::to_string(letters[i]) + ", Qwen3.5 has it at " +
                                std::to_string(32 + i) + ": is it the base model's own?");
    }
  }
  if (tokenizer.vocabulary() > checkpoint.config().vocabulary) {
    fail(*tokenizer_json, "has ids up to " + std::to_string(tokenizer.vocabulary() - 1) +
                              ", the model " + std::to_string(checkpoint.config().vocabulary) +
                              " rows");
  }
  tell("tokenizer: A to Z are tokens 32 to 57, ids below " +
       std::to_string(tokenizer.vocabulary()) + " of " +
       std::to_string(checkpoint.config().vocabulary) + " rows");
}

}  // namespace cua::tools
