// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>

namespace cua_server {

// Folder of the demonstration model: `demo` beside the executable, else where it is installed.
// Throws std::runtime_error, which names the folders searched and the remedy, where there is none.
std::filesystem::path find_demonstration();

}  // namespace cua_server
