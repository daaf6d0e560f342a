// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "http/address.h"

namespace cua_server {

// A command line, environment or file of settings that cannot be used; names the flag or variable,
// and the remedy.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Device {
  bool is_cpu = false;
  int32_t ordinal = 0;  // of a GPU
};

struct Options {
  std::string model;                     // folder; empty: the demonstration model
  std::vector<http::Address> addresses;  // to listen at; one at least
  std::string cuda_lib;                  // empty: looked for
  std::string plans;                     // file of GEMM plans; empty: none
  uint32_t graph_mode = 0;
  std::vector<Device> devices{{}};  // one engine each; all CPU or none
  uint32_t threads = 0;             // of the CPU library
  uint32_t workers = 1;             // threads that parse and tokenise
  bool exit_on_device_failure = false;
  bool batch = true;
  std::chrono::microseconds batch_wait{};
  uint32_t max_batch_tokens = 0;  // 0: the engine's
  uint32_t max_connections = 4096;
  uint64_t max_queue_requests = 1024, max_queue_tokens = 4'000'000;
  std::chrono::milliseconds request_timeout{};   // 0: none
  std::chrono::milliseconds drain_delay{};       // 0: none
  std::chrono::milliseconds shutdown_timeout{};  // 0: none
  std::vector<std::string> accepted_models;      // beside the contract's own
  std::vector<std::string> api_keys;             // empty: all is open
  bool protect_metrics = false;
  std::vector<std::string> cors_origins;  // whose pages may ask; "*": all
  bool has_page = true;                   // at /
  bool log_json = false;
  int log_level = 2;  // 0 errors, 1 warnings, 2 info, 3 debug
  bool check = false;
  bool help = false, version = false;
};

// A flag wins over its variable, a variable over the file of --config. Throws UsageError.
Options parse_options(int argc, const char *const *argv);
std::string usage();

}  // namespace cua_server
