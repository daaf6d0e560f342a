// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace cua_server {

// A command line or environment that cannot be used; names the flag or variable, and the remedy.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string model;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string cuda_lib;  // empty: looked for
  uint32_t graph_mode = 0;
  bool device_is_cpu = false;
  int32_t device = 0;  // CUDA ordinal
  uint32_t threads = 0;
  bool exit_on_device_failure = false;
  bool help = false, version = false;
};

// A flag wins over its variable. Throws UsageError.
Options parse_options(int argc, const char *const *argv);
std::string usage();

}  // namespace cua_server
