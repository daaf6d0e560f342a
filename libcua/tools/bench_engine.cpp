// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_engine.h"

#include <dlfcn.h>

#include <boost/json.hpp>
#include <filesystem>
#include <stdexcept>

namespace cua::tools {
namespace {

namespace fs = std::filesystem;

template <class Function>
void load(void *handle, const std::string &path, const char *name, Function &function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr) throw std::runtime_error(path + " lacks the symbol " + name);
}

// The library beside this program, or where the two are installed.
std::string find_library(bool is_cpu) {
  const std::string name = is_cpu ? "libcua_cpu.so" : "libcua.so";
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path installed = (beside / CUA_RELATIVE_LIBDIR).lexically_normal();
  for (const fs::path &folder : {beside, installed}) {
    for (const std::string &file : {name, name + "." + std::to_string(CUA_ABI_MAJOR)}) {
      if (fs::exists(folder / file)) return folder / file;
    }
  }
  throw std::runtime_error(name + " was not found in " + beside.string() + " and " +
                           installed.string() + "; name the library with --cuda-lib" +
                           (is_cpu ? "" : ", or use --device cpu"));
}

struct Outcome {
  Outcome() { error.struct_size = sizeof error; }
  void check(int32_t code) const {
    if (code != CUA_OK) throw std::runtime_error(error.message);
  }
  cua_error error{};
};

}  // namespace

BenchLibrary::BenchLibrary(const BenchFlags &flags) : path_(flags.cuda_lib) {
  if (path_.empty()) path_ = find_library(flags.is_cpu());
  if (!fs::exists(path_)) {
    throw std::runtime_error(path_ + " does not exist; name the library with --cuda-lib" +
                             (flags.is_cpu() ? "" : ", or use --device cpu"));
  }
  void *const handle = ::dlopen(fs::absolute(path_).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(::dlerror());
  decltype(&cua_abi_version) version;
  load(handle, path_, "cua_abi_version", version);
  // Minor 0 is the least there is.
  if (version() >> 16 != CUA_ABI_MAJOR) {
    throw std::runtime_error(path_ + " has ABI " + std::to_string(version() >> 16) + "; " +
                             std::to_string(CUA_ABI_MAJOR) + " is needed");
  }
  load(handle, path_, "cua_build_info", build_info_);
  load(handle, path_, "cua_engine_create", create_);
  load(handle, path_, "cua_engine_destroy", destroy_);
  load(handle, path_, "cua_engine_describe", describe_);
  load(handle, path_, "cua_tokenize", tokenize_);
  load(handle, path_, "cua_score_prompts", score_);
  load(handle, path_, "cua_engine_stats", stats_);
}

boost::json::value BenchLibrary::about() const { return boost::json::parse(build_info_()); }

BenchEngine::BenchEngine(const BenchLibrary &library, const BenchFlags &flags,
                         cua_engine_options options)
    : library_(library) {
  options.struct_size = sizeof options;
  options.model_dir = flags.model.data();
  options.model_dir_length = flags.model.size();
  options.device = flags.ordinal();
  options.threads = flags.threads;
  Outcome outcome;
  outcome.check(library_.create_(&options, &engine_, &outcome.error));
}

BenchEngine::~BenchEngine() { library_.destroy_(engine_); }

boost::json::value BenchEngine::describe() const {
  uint64_t needed = 0;
  Outcome outcome;
  const int32_t code = library_.describe_(engine_, nullptr, 0, &needed, &outcome.error);
  if (code != CUA_BUFFER_TOO_SMALL) outcome.check(code);
  std::string text(needed, '\0');
  outcome.check(library_.describe_(engine_, text.data(), text.size(), &needed, &outcome.error));
  return boost::json::parse(text);
}

uint64_t BenchEngine::tokenize(std::string_view text, std::span<uint32_t> ids) const {
  uint64_t count = 0;
  Outcome outcome;
  outcome.check(library_.tokenize_(engine_, text.data(), text.size(), ids.data(), ids.size(),
                                   &count, &outcome.error));
  return count;
}

void BenchEngine::score(std::span<const cua_prompt> prompts, std::span<cua_score> scores) {
  Outcome outcome;
  outcome.check(library_.score_(engine_, prompts.data(), static_cast<uint32_t>(prompts.size()),
                                scores.data(), &outcome.error));
}

cua_stats BenchEngine::stats() const {
  cua_stats stats{};
  stats.struct_size = sizeof stats;
  Outcome outcome;
  outcome.check(library_.stats_(engine_, &stats, &outcome.error));
  return stats;
}

}  // namespace cua::tools
