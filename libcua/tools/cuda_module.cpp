// SPDX-License-Identifier: Apache-2.0
#include "tools/cuda_module.h"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace cua::tools {

void *module_function(const char *name, const char *wanted_by) {
  const std::filesystem::path module =
      std::filesystem::canonical("/proc/self/exe").parent_path() / kCudaModule;
  void *const handle = ::dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw std::runtime_error(std::string(wanted_by) + " needs the CUDA backend's module: " +
                             ::dlerror() + "; build where nvcc is found");
  }
  void *const function = ::dlsym(handle, name);
  if (function == nullptr) throw std::runtime_error(module.string() + " is of another build");
  return function;
}

}  // namespace cua::tools
