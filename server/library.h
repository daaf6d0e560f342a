// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "cua.h"

namespace cua_server {

// Why a library is refused, in one line.
class LibraryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// libcua, opened with dlopen and checked against the header that this server was built with. Stays
// open for the life of the process: threads of the library may outlive any owner.
class Library {
 public:
  // Throws LibraryError: no such file, not a library, a missing dependency or symbol, another ABI
  // major, an older minor.
  explicit Library(const std::filesystem::path &path);

  // The library to use where none is named: beside the executable, then in the libdir of the
  // installed layout. device_is_cpu picks libcua_cpu. Throws LibraryError that names the remedies.
  static std::filesystem::path find(bool device_is_cpu);

  decltype(&cua_abi_version) abi_version;
  decltype(&cua_build_info) build_info;
  decltype(&cua_engine_create) engine_create;
  decltype(&cua_engine_destroy) engine_destroy;
  decltype(&cua_engine_describe) engine_describe;
  decltype(&cua_tokenize) tokenize;
  decltype(&cua_score_prompts) score_prompts;
  decltype(&cua_set_graph_mode) set_graph_mode;
  decltype(&cua_engine_stats) engine_stats;
};

}  // namespace cua_server
