// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <functional>
#include <string>

namespace cua::tools {

// Re-reads a merged folder: marker, the hashes in it, every tensor's presence, shape, dtype and
// finiteness, the tokenizer's letters. Tells of each check in a line. Throws Error BAD_MODEL that
// names the first fault; Stopped.
void verify_folder(const std::filesystem::path &folder, size_t threads,
                   const std::function<void(const std::string &)> &tell);

}  // namespace cua::tools
