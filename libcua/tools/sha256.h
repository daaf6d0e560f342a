// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace cua::tools {

struct FileHash {
  uint64_t size = 0;   // bytes
  std::string sha256;  // 64 lower-case hexadecimal digits
};

// Reads whole files, several at a time, and gives their hashes in the same order. `what` is shown
// with the progress; threads 0: all cores. Throws Error BAD_MODEL that names a file which cannot be
// read; Stopped.
std::vector<FileHash> hash_files(const std::vector<std::filesystem::path> &paths,
                                 const std::string &what, size_t threads);

}  // namespace cua::tools
