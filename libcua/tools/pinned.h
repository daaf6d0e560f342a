// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace cua::tools {

// One download of a lock file: sizes and SHA-256 of its files.
struct Artifact {
  struct File {
    uint64_t size = 0;
    std::string sha256;
  };
  std::string name, repository, revision, role;
  std::map<std::string, File> files;  // by path within the download
};

// The last part of a folder's path, a trailing slash or "." left out.
std::string folder_name(const std::filesystem::path &folder);

// A lock file ("cua-s1/weights-lock/v1", see docs/checkpoint.md); of an empty path the one that was
// built in. Throws Error BAD_MODEL that names file and field.
std::vector<Artifact> read_lock(const std::filesystem::path &path);

struct PinnedResult {
  const Artifact *artifact = nullptr;
  size_t matching = 0;
  std::vector<std::string> faults;  // one sentence a file, in words
  std::vector<std::string> notes;   // files that are not there, and need not be
};

// Compares a downloaded folder with the artifact that has its name or, where none has, most of its
// files. Throws Error BAD_MODEL where no artifact is of this folder; Stopped.
PinnedResult verify_pinned(const std::vector<Artifact> &artifacts,
                           const std::filesystem::path &folder, size_t threads);

}  // namespace cua::tools
