// SPDX-License-Identifier: Apache-2.0
#include "demonstration.h"

#include <stdexcept>
#include <string>
#include <system_error>

namespace cua_server {

namespace fs = std::filesystem;

fs::path find_demonstration() {
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::string searched;
  for (const fs::path &folder : {beside / "demo", beside / CUA_RELATIVE_DATADIR / "cua" / "demo"}) {
    if (fs::exists(folder / "config.json", error)) return folder.lexically_normal();
    searched += (searched.empty() ? "" : " and ") + folder.lexically_normal().string();
  }
  throw std::runtime_error("the demonstration model was not found in " + searched +
                           ": install it, or name a folder with --model");
}

}  // namespace cua_server
