// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <dlfcn.h>

#include <vector>

namespace cua_server {
namespace {

namespace fs = std::filesystem;

std::string version(uint32_t abi) {
  return std::to_string(abi >> 16) + "." + std::to_string(abi & 0xffff);
}

template <class Function>
void load(void *handle, const fs::path &path, const char *name, Function &function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr) {
    throw LibraryError("refusing " + path.string() + ": it lacks the symbol " + name +
                       "; it is not libcua, or its build is damaged");
  }
}

}  // namespace

Library::Library(const fs::path &path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw LibraryError("refusing " + path.string() + ": there is no such file");
  }
  // An absolute path, so that the loader does not search for a bare name.
  const fs::path absolute = fs::absolute(path, error);
  void *const handle = ::dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char *const reason = ::dlerror();
    std::string text =
        "refusing " + path.string() + ": " + (reason != nullptr ? reason : "unknown");
    if (text.find("libcuda") != text.npos || text.find("libcublas") != text.npos) {
      text += "; install the CUDA runtime (cudart and cuBLASLt) or use --device cpu";
    }
    throw LibraryError(text);
  }
  load(handle, path, "cua_abi_version", abi_version);
  const uint32_t abi = abi_version();
  if (abi >> 16 != CUA_ABI_MAJOR) {
    throw LibraryError("refusing " + path.string() + ": its ABI is " + version(abi) +
                       ", this server needs " + version(CUA_ABI_MAJOR << 16 | CUA_ABI_MINOR) +
                       "; use a library and a server of the same major version");
  }
  if (static_cast<int32_t>(abi & 0xffff) < static_cast<int32_t>(CUA_ABI_MINOR)) {
    throw LibraryError("refusing " + path.string() + ": its ABI " + version(abi) +
                       " is older than the " + version(CUA_ABI_MAJOR << 16 | CUA_ABI_MINOR) +
                       " that this server needs; update the library");
  }
  load(handle, path, "cua_build_info", build_info);
  load(handle, path, "cua_engine_create", engine_create);
  load(handle, path, "cua_engine_destroy", engine_destroy);
  load(handle, path, "cua_engine_describe", engine_describe);
  load(handle, path, "cua_tokenize", tokenize);
  load(handle, path, "cua_score_prompts", score_prompts);
  load(handle, path, "cua_set_graph_mode", set_graph_mode);
  load(handle, path, "cua_engine_stats", engine_stats);
}

fs::path Library::find(bool device_is_cpu) {
  const std::string name = device_is_cpu ? "libcua_cpu.so" : "libcua.so";
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path();
  const std::vector<fs::path> folders = {beside, beside / CUA_RELATIVE_LIBDIR};
  std::string searched;
  for (const fs::path &folder : folders) {
    for (const std::string &file : {name, name + "." + std::to_string(CUA_ABI_MAJOR)}) {
      if (fs::exists(folder / file, error)) return folder / file;
    }
    searched += (searched.empty() ? "" : " and ") + folder.lexically_normal().string();
  }
  std::string remedy =
      device_is_cpu
          ? "name it with --cuda-lib"
          : "build it with a CUDA toolkit or name it with --cuda-lib, or run without a GPU with "
            "--device cpu";
  throw LibraryError(name + " was not found in " + searched + ": " + remedy);
}

}  // namespace cua_server
