// SPDX-License-Identifier: Apache-2.0
// The command line and the environment; lifecycle.py tries the same through the program.
#include "options.h"

#include <cstdlib>
#include <vector>

#include "catch.h"

using cua_server::Options;
using cua_server::parse_options;
using cua_server::UsageError;

namespace {

constexpr const char *kVariables[] = {"CUA_S1_MODEL", "CUA_S1_HOST", "CUA_S1_PORT",
                                      "CUA_S1_CUDA_LIB", "CUA_S1_GRAPH",
                                      "CUA_S1_EXIT_ON_DEVICE_FAILURE"};

Options parse(std::vector<const char *> flags,
              const std::vector<std::pair<const char *, const char *>> &environment = {}) {
  for (const char *variable : kVariables) ::unsetenv(variable);
  for (const auto &[variable, value] : environment) ::setenv(variable, value, 1);
  flags.insert(flags.begin(), "cua-server");
  return parse_options(static_cast<int>(flags.size()), flags.data());
}

std::string refusal(const std::vector<const char *> &flags,
                    const std::vector<std::pair<const char *, const char *>> &environment = {}) {
  try {
    parse(flags, environment);
    return "";
  } catch (const UsageError &error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("exit on device failure: the flag or the variable") {
  constexpr const char *kVariable = "CUA_S1_EXIT_ON_DEVICE_FAILURE";
  CHECK(!parse({"--model", "m"}).exit_on_device_failure);
  CHECK(!parse({"--model", "m"}, {{kVariable, "0"}}).exit_on_device_failure);
  CHECK(parse({"--model", "m"}, {{kVariable, "1"}}).exit_on_device_failure);
  CHECK(parse({"--model", "m", "--exit-on-device-failure"}, {{kVariable, "0"}})
            .exit_on_device_failure);
  CHECK(refusal({"--model", "m"}, {{kVariable, "true"}}).find(kVariable) != std::string::npos);
}

TEST_CASE("defaults") {
  const Options options = parse({"--model", "m"});
  CHECK(options.model == "m");
  CHECK(options.host == "127.0.0.1");
  CHECK(options.port == 8000);
  CHECK(options.cuda_lib.empty());
  CHECK(options.graph_mode == 0);
  CHECK(!options.device_is_cpu);
  CHECK(options.device == 0);
  CHECK(options.threads == 0);
}

TEST_CASE("every flag, and every variable") {
  const Options flags = parse({"--model=m", "--host", "::1", "--port", "0", "--cuda-lib", "l",
                               "--graph", "1", "--device", "3", "--threads", "5"});
  CHECK(flags.host == "::1");
  CHECK(flags.port == 0);
  CHECK(flags.cuda_lib == "l");
  CHECK(flags.graph_mode == 1);
  CHECK(flags.device == 3);
  CHECK(flags.threads == 5);
  CHECK(parse({"--model", "m", "--device", "cpu"}).device_is_cpu);
  CHECK(parse({"--model", "m", "--graph", "bucket"}).graph_mode == 2);
  const Options variables = parse({}, {{"CUA_S1_MODEL", "m"},
                                       {"CUA_S1_HOST", "h"},
                                       {"CUA_S1_PORT", "65535"},
                                       {"CUA_S1_CUDA_LIB", "l"},
                                       {"CUA_S1_GRAPH", "1"}});
  CHECK(variables.model == "m");
  CHECK(variables.host == "h");
  CHECK(variables.port == 65535);
  CHECK(variables.cuda_lib == "l");
  CHECK(variables.graph_mode == 1);
}

TEST_CASE("a flag wins over its variable, and hides that it is wrong") {
  CHECK(parse({"--model", "flag"}, {{"CUA_S1_MODEL", "variable"}}).model == "flag");
  CHECK(parse({"--model", "m", "--port", "1"}, {{"CUA_S1_PORT", "x"}}).port == 1);
  CHECK(parse({"--model", "m", "--graph", "0"}, {{"CUA_S1_GRAPH", "1"}}).graph_mode == 0);
}

TEST_CASE("an empty variable is as good as none") {
  const Options options = parse(
      {"--model", "m"},
      {{"CUA_S1_HOST", ""}, {"CUA_S1_PORT", ""}, {"CUA_S1_CUDA_LIB", ""}, {"CUA_S1_GRAPH", ""}});
  CHECK(options.host == "127.0.0.1");
  CHECK(options.port == 8000);
  CHECK(options.graph_mode == 0);
}

TEST_CASE("what cannot be used is refused by name") {
  CHECK(refusal({}).find("CUA_S1_MODEL") != std::string::npos);
  for (const char *port :
       {"", " ", "-1", "65536", "1.5", "0x10", "http", "99999999999999999999", "+1", "1 "}) {
    CAPTURE(port);
    CHECK(refusal({"--model", "m", "--port", port}).find("--port") != std::string::npos);
    if (*port != '\0') {
      CHECK(refusal({"--model", "m"}, {{"CUA_S1_PORT", port}}).find("CUA_S1_PORT") !=
            std::string::npos);
    }
  }
  for (const char *graph : {"", "2", "true", "off", "Bucket", "01"}) {
    CAPTURE(graph);
    CHECK(refusal({"--model", "m", "--graph", graph}).find("--graph") != std::string::npos);
  }
  for (const char *device : {"", "CPU", "gpu", "-1", "1024", "0 "}) {
    CAPTURE(device);
    CHECK(refusal({"--model", "m", "--device", device}).find("--device") != std::string::npos);
  }
  CHECK(refusal({"--model", "m", "--threads", "-1"}).find("--threads") != std::string::npos);
  CHECK(refusal({"--model", "m", "--host", ""}).find("--host") != std::string::npos);
  CHECK(refusal({"--model", "m", "--cuda-lib", ""}).find("--cuda-lib") != std::string::npos);
  CHECK(!refusal({"--model", "m", "--mode", "x"}).empty());
  CHECK(!refusal({"--model", "m", "stray"}).empty());
  CHECK(!refusal({"--model", "m", "--model", "n"}).empty());
}

TEST_CASE("help and version need nothing else") {
  CHECK(parse({"--help"}).help);
  CHECK(parse({"--version"}).version);
  for (const char *variable : kVariables) {
    CHECK(cua_server::usage().find(variable) != std::string::npos);
  }
}
