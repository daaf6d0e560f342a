// SPDX-License-Identifier: Apache-2.0
#include "tools/pinned.h"

#include <algorithm>
#include <boost/json.hpp>

#include "checkpoint/json_fields.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/printable.h"
#include "error.h"
#include "tools/sha256.h"
#include "weights_lock.h"

namespace cua::tools {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using checkpoint::Fields;
using checkpoint::printable;

constexpr char kSchema[] = "cua-s1/weights-lock/v1";

Artifact read_artifact(const json::value &value, const std::string &file) {
  if (!value.is_object()) throw Error(CUA_BAD_MODEL, file + ": an artifact is not an object");
  const Fields fields(value.as_object(), file);
  const auto text = [&](const char *name) {
    const auto found = fields.text(name);
    if (!found || found->empty()) fields.fail(name, "is missing or empty");
    return *found;
  };
  Artifact artifact;
  artifact.name = text("name");
  artifact.repository = text("repo_id");
  artifact.revision = text("revision");
  artifact.role = text("role");
  const json::object *const files = fields.object("files");
  if (files == nullptr || files->empty()) fields.fail("files", "is missing or empty");
  for (const auto &[path, about] : *files) {
    const fs::path relative = std::string(path);
    const bool inside = !relative.empty() && relative.is_relative() &&
                        std::none_of(relative.begin(), relative.end(),
                                     [](const fs::path &part) { return part == ".."; });
    if (!inside) fields.fail("files", "names \"" + printable(path) + "\", which leads elsewhere");
    const auto bad = [&, &name = path] {
      fields.fail("files", "has no size or no sha256 of 64 digits for " + printable(name));
    };
    if (!about.is_object()) bad();
    const json::value *const size = about.as_object().if_contains("size");
    const json::value *const hash = about.as_object().if_contains("sha256");
    if (size == nullptr || hash == nullptr || !hash->is_string() ||
        hash->as_string().size() != 64 || !(size->is_int64() || size->is_uint64()) ||
        (size->is_int64() && size->as_int64() < 0)) {
      bad();
    }
    artifact.files[std::string(path)] = {size->to_number<uint64_t>(),
                                         std::string(hash->as_string())};
  }
  return artifact;
}

// Whether a merge or a worker reads it; the others are for people.
bool is_needed(const fs::path &path) {
  return path.extension() == ".safetensors" || path.extension() == ".json";
}

}  // namespace

std::string folder_name(const fs::path &folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::vector<Artifact> read_lock(const fs::path &path) {
  const std::string file = path.empty() ? "the built-in lock file" : path.string();
  const json::object root = path.empty() ? checkpoint::parse_json_object(kWeightsLock, file)
                                         : checkpoint::read_json_object(path);
  const Fields fields(root, file);
  if (fields.text("schema") != kSchema) {
    fields.fail("schema", std::string("is not \"") + kSchema + "\"");
  }
  const json::array *const array = fields.array("artifacts");
  if (array == nullptr || array->empty()) fields.fail("artifacts", "is missing or empty");
  std::vector<Artifact> artifacts;
  for (const json::value &value : *array) artifacts.push_back(read_artifact(value, file));
  return artifacts;
}

PinnedResult verify_pinned(const std::vector<Artifact> &artifacts, const fs::path &folder,
                           size_t threads) {
  if (!fs::is_directory(folder)) {
    throw Error(CUA_BAD_MODEL, folder.string() + ": is not a folder; name a download");
  }
  const std::string own_name = folder_name(folder);
  PinnedResult result;
  size_t most = 0;
  for (const Artifact &artifact : artifacts) {
    if (artifact.name == own_name) {
      result.artifact = &artifact;
      break;
    }
    const auto there =
        std::count_if(artifact.files.begin(), artifact.files.end(), [&](const auto &file) {
          return is_needed(file.first) && checkpoint::has_entry(folder / file.first);
        });
    if (static_cast<size_t>(there) > most) {
      most = static_cast<size_t>(there);
      result.artifact = &artifact;
    }
  }
  if (result.artifact == nullptr) {
    std::string names;
    for (const Artifact &artifact : artifacts) {
      names += (names.empty() ? "" : ", ") + artifact.name;
    }
    throw Error(CUA_BAD_MODEL, folder.string() + ": has no file of any pinned download (" + names +
                                   "); name the folder that was given to --local-dir");
  }

  struct Job {
    std::string path;
    const Artifact::File *wanted;
  };
  std::vector<Job> jobs;
  for (const auto &[path, wanted] : result.artifact->files) {
    const fs::path file = folder / path;
    if (!checkpoint::has_entry(file)) {
      const fs::path above = fs::path(path).parent_path();
      const bool skipped = !is_needed(path) || (!above.empty() && !fs::exists(folder / above));
      (skipped ? result.notes : result.faults)
          .push_back(path + (skipped ? ": not downloaded" : ": is missing; download it again"));
      continue;
    }
    std::error_code error;
    const uint64_t size = fs::file_size(file, error);
    if (error || size != wanted.size) {
      result.faults.push_back(
          path + ": " +
          (error ? "cannot be examined: " + error.message()
                 : "has " + std::to_string(size) + " bytes, the lock file says " +
                       std::to_string(wanted.size) +
                       (size < wanted.size ? ": the download is not complete" : "")));
      continue;
    }
    jobs.push_back({path, &wanted});
  }
  std::vector<fs::path> paths;
  for (const Job &job : jobs) paths.push_back(folder / job.path);
  const std::vector<FileHash> hashes = hash_files(paths, "checking", threads);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (hashes[i].sha256 == jobs[i].wanted->sha256) {
      ++result.matching;
    } else {
      result.faults.push_back(jobs[i].path + ": its SHA-256 is " + hashes[i].sha256 +
                              ", the lock file says " + jobs[i].wanted->sha256 +
                              "; download it again");
    }
  }
  std::sort(result.faults.begin(), result.faults.end());
  return result;
}

}  // namespace cua::tools
