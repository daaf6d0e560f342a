// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace cua::tools {

struct FileHash {
  uint64_t size = 0;   // bytes
  std::string sha256;  // 64 lower-case hexadecimal digits
};

// Reads a whole file. progress(bytes more) may be empty; what it throws ends the work. Throws Error
// BAD_MODEL that names a file which cannot be read.
FileHash hash_file(const std::filesystem::path &path,
                   const std::function<void(uint64_t)> &progress);

}  // namespace cua::tools
