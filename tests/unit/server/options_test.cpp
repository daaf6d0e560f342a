// SPDX-License-Identifier: Apache-2.0
// The command line and the environment; lifecycle.py tries the same through the program.
#include "options.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "catch.h"

using cua_server::Options;
using cua_server::parse_options;
using cua_server::UsageError;

namespace {

constexpr const char *kVariables[] = {
    "CUA_S1_MODEL",    "CUA_S1_HOST",  "CUA_S1_PORT",
    "CUA_S1_CUDA_LIB", "CUA_S1_GRAPH", "CUA_S1_EXIT_ON_DEVICE_FAILURE",
    "CUA_S1_CONFIG",   "CUA_S1_BATCH", "CUA_S1_DEVICES",
    "CUA_S1_DEVICE",   "CUA_S1_NO_UI", "CUA_S1_DEMO",
    "CUA_S1_API_KEY",  "CUA_S1_PLANS"};

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

TEST_CASE(
    "the demonstration: a flag wins over the other's variable, and two flags are one too many") {
  CHECK(parse({"--demo"}).model.empty());
  CHECK(parse({"--demo"}).devices.front().is_cpu);
  CHECK(!parse({"--demo", "--device", "0"}).devices.front().is_cpu);
  CHECK(parse({"--demo"}, {{"CUA_S1_MODEL", "m"}}).model.empty());
  CHECK(parse({}, {{"CUA_S1_DEMO", "1"}}).model.empty());
  CHECK(parse({"--model", "m"}, {{"CUA_S1_DEMO", "1"}}).model == "m");
  CHECK(!parse({"--model", "m"}, {{"CUA_S1_DEMO", "1"}}).devices.front().is_cpu);
  CHECK(parse({}, {{"CUA_S1_DEMO", "1"}, {"CUA_S1_MODEL", "m"}}).model == "m");
  CHECK(refusal({}, {{"CUA_S1_DEMO", "0"}}).find("--demo") != std::string::npos);
  CHECK(refusal({"--demo", "--model", "m"}).find("leave --model or --demo out") !=
        std::string::npos);
}

TEST_CASE("the page: there, unless the flag or the variable takes it away") {
  CHECK(parse({"--model", "m"}).has_page);
  CHECK(!parse({"--model", "m", "--no-ui"}).has_page);
  CHECK(!parse({"--model", "m"}, {{"CUA_S1_NO_UI", "1"}}).has_page);
  CHECK(parse({"--model", "m"}, {{"CUA_S1_NO_UI", "0"}}).has_page);
  CHECK(refusal({"--model", "m"}, {{"CUA_S1_NO_UI", "yes"}}).find("CUA_S1_NO_UI") !=
        std::string::npos);
}

TEST_CASE("defaults") {
  const Options options = parse({"--model", "m"});
  CHECK(options.model == "m");
  CHECK(options.addresses.front().host == "127.0.0.1");
  CHECK(options.addresses.front().port == 8000);
  CHECK(options.cuda_lib.empty());
  CHECK(options.graph_mode == 0);
  REQUIRE(options.devices.size() == 1);
  CHECK(!options.devices[0].is_cpu);
  CHECK(options.devices[0].ordinal == 0);
  CHECK(options.threads == 0);
  CHECK(options.workers >= 1);
  CHECK(options.batch);
  CHECK(options.batch_wait.count() == 0);
  CHECK(options.max_batch_tokens == 0);
  CHECK(options.max_queue_requests == 1024);
  CHECK(options.max_queue_tokens == 4'000'000);
  CHECK(options.request_timeout.count() == 0);
  CHECK(options.shutdown_timeout.count() == 0);
  CHECK(!options.check);
}

TEST_CASE("every flag, and every variable") {
  const Options flags = parse({"--model=m", "--host", "::1", "--port", "0", "--cuda-lib", "l",
                               "--graph", "1", "--device", "3", "--threads", "5", "--plans", "p"});
  CHECK(flags.addresses.front().host == "::1");
  CHECK(flags.addresses.front().port == 0);
  CHECK(flags.cuda_lib == "l");
  CHECK(flags.graph_mode == 1);
  CHECK(flags.devices[0].ordinal == 3);
  CHECK(flags.threads == 5);
  CHECK(flags.plans == "p");
  CHECK(refusal({"--model", "m", "--plans="}).find("--plans") != std::string::npos);
  CHECK(parse({"--model", "m", "--device", "cpu"}).devices[0].is_cpu);
  CHECK(parse({"--model", "m", "--graph", "bucket"}).graph_mode == 2);
  const Options variables = parse({}, {{"CUA_S1_MODEL", "m"},
                                       {"CUA_S1_HOST", "h"},
                                       {"CUA_S1_PORT", "65535"},
                                       {"CUA_S1_CUDA_LIB", "l"},
                                       {"CUA_S1_GRAPH", "1"},
                                       {"CUA_S1_PLANS", "p"}});
  CHECK(variables.plans == "p");
  CHECK(variables.model == "m");
  CHECK(variables.addresses.front().host == "h");
  CHECK(variables.addresses.front().port == 65535);
  CHECK(variables.cuda_lib == "l");
  CHECK(variables.graph_mode == 1);
}

TEST_CASE("the worker's own settings, from the line, the environment and a file") {
  const std::string path = "cua_options_test.ini";
  const auto write = [&](const std::string &text) { std::ofstream(path) << text; };
  write(
      "# a comment\nmodel = from the file\nport = 7\nbatch = off\nrequest-timeout = 1.5\n"
      "devices = 0,1,2\nexit-on-device-failure = 1\nmax-queue-requests = 9\n");
  const Options file = parse({"--config", path.c_str()});
  CHECK(file.model == "from the file");
  CHECK(file.addresses.front().port == 7);
  CHECK(!file.batch);
  CHECK(file.request_timeout.count() == 1500);
  CHECK(file.devices.size() == 3);
  CHECK(file.devices[2].ordinal == 2);
  CHECK(file.exit_on_device_failure);
  CHECK(file.max_queue_requests == 9);
  CHECK(parse({"--config", path.c_str()}, {{"CUA_S1_PORT", "8"}}).addresses.front().port == 8);
  CHECK(parse({"--config", path.c_str(), "--port", "9"}, {{"CUA_S1_PORT", "8"}})
            .addresses.front()
            .port == 9);
  CHECK(parse({"--config", path.c_str(), "--device", "cpu"}).devices.size() == 1);
  CHECK(parse({"--config", path.c_str()}, {{"CUA_S1_DEVICE", "cpu"}}).devices.size() == 1);
  CHECK(parse({"--config", path.c_str()}, {{"CUA_S1_DEMO", "1"}}).model.empty());
  CHECK(parse({}, {{"CUA_S1_CONFIG", path.c_str()}}).addresses.front().port == 7);
  write("model = m\nport = high\n");
  CHECK(refusal({"--config", path.c_str()}).find("port in " + path) != std::string::npos);
  write("model = m\ncolour = red\n");
  CHECK(refusal({"--config", path.c_str()}).find("colour") != std::string::npos);
  std::remove(path.c_str());
  CHECK(refusal({"--config", path.c_str()}).find(path) != std::string::npos);

  const Options flags =
      parse({"--model", "m", "--batch-wait-us", "50", "--max-batch-tokens", "100", "--workers", "3",
             "--max-queue-tokens", "5", "--shutdown-timeout", "2", "--check"});
  CHECK(flags.batch_wait.count() == 50);
  CHECK(flags.max_batch_tokens == 100);
  CHECK(flags.workers == 3);
  CHECK(flags.max_queue_tokens == 5);
  CHECK(flags.shutdown_timeout.count() == 2000);
  CHECK(flags.check);
  CHECK(parse({"--model", "m"}, {{"CUA_S1_BATCH", "off"}}).batch == false);
  CHECK(parse({"--model", "m"}, {{"CUA_S1_DEVICES", "cpu,cpu"}}).devices.size() == 2);
  for (const auto &[flag, value] : {std::pair<const char *, const char *>{"--batch", "yes"},
                                    {"--devices", "cpu,0"},
                                    {"--devices", ""},
                                    {"--devices", "0,"},
                                    {"--request-timeout", "-1"},
                                    {"--request-timeout", "soon"},
                                    {"--max-queue-requests", "0"},
                                    {"--batch-wait-us", "1s"},
                                    {"--shutdown-timeout", "nan"},
                                    {"--max-batch-tokens", "-1"},
                                    {"--workers", "257"}}) {
    CAPTURE(flag, value);
    CHECK(refusal({"--model", "m", flag, value}).find(flag) != std::string::npos);
  }
}

TEST_CASE("a flag wins over its variable, and hides that it is wrong") {
  CHECK(parse({"--model", "flag"}, {{"CUA_S1_MODEL", "variable"}}).model == "flag");
  CHECK(parse({"--model", "m", "--port", "1"}, {{"CUA_S1_PORT", "x"}}).addresses.front().port == 1);
  CHECK(parse({"--model", "m", "--graph", "0"}, {{"CUA_S1_GRAPH", "1"}}).graph_mode == 0);
}

TEST_CASE("an empty variable is as good as none") {
  const Options options = parse(
      {"--model", "m"},
      {{"CUA_S1_HOST", ""}, {"CUA_S1_PORT", ""}, {"CUA_S1_CUDA_LIB", ""}, {"CUA_S1_GRAPH", ""}});
  CHECK(options.addresses.front().host == "127.0.0.1");
  CHECK(options.addresses.front().port == 8000);
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

TEST_CASE("where to listen") {
  const auto listens = [](const Options &options) {
    std::string text;
    for (const cua_server::http::Address &address : options.addresses) {
      text += address.path.empty() ? address.host + "|" + std::to_string(address.port) + " "
                                   : address.path + " ";
    }
    return text;
  };
  CHECK(listens(parse({"--model", "m"})) == "127.0.0.1|8000 ");
  CHECK(listens(parse({"--model", "m", "--listen", "unix:a b/s"})) == "a b/s ");
  CHECK(listens(parse({"--model", "m", "--listen", "[::1]:7", "--listen", "unix:s,0.0.0.0:0"})) ==
        "::1|7 s 0.0.0.0|0 ");
  CHECK(listens(parse({"--model", "m", "--listen", "unix:s", "--port", "9"})) == "127.0.0.1|9 s ");
  CHECK(listens(parse({"--model", "m"}, {{"CUA_S1_LISTEN", "h:1,unix:s"}})) == "h|1 s ");
  for (const std::string &bad :
       std::vector<std::string>{"", "unix:", "8000", ":8000", "h:", "h:65536", "::1:80", "[::1]",
                                "h:1,", "unix:" + std::string(108, 'x')}) {
    CAPTURE(bad);
    CHECK(refusal({"--model", "m", "--listen", bad.c_str()}).find("--listen") != std::string::npos);
  }
  const std::string longest(107, 'x');
  CHECK(listens(parse({"--model", "m", "--listen", ("unix:" + longest).c_str()})) == longest + " ");
}

TEST_CASE("settings of several values: the flag again, commas, lines of a file") {
  using Names = std::vector<std::string>;
  CHECK(parse({"--model", "m"}).accepted_models.empty());
  CHECK(parse({"--model", "m", "--accept-model", "a", "--accept-model", "b,c"}).accepted_models ==
        Names{"a", "b", "c"});
  CHECK(parse({"--model", "m"}, {{"CUA_S1_ACCEPT_MODEL", "a,b"}}).accepted_models ==
        Names{"a", "b"});
  const std::string path = "cua_options_lists_test.ini";
  std::ofstream(path) << "model = m\naccept-model = a\naccept-model = b\ncors-origin = *\n";
  CHECK(parse({"--config", path.c_str()}).accepted_models == Names{"a", "b"});
  CHECK(parse({"--config", path.c_str()}).cors_origins == Names{"*"});
  std::remove(path.c_str());
  CHECK(parse({"--model", "m", "--cors-origin", "https://a.example:8443"}).cors_origins ==
        Names{"https://a.example:8443"});
  for (const char *bad : {"", "a.example", "https://a.example/", "https://a/b"}) {
    CAPTURE(bad);
    CHECK(refusal({"--model", "m", "--cors-origin", bad}).find("--cors-origin") !=
          std::string::npos);
  }
  CHECK(refusal({"--model", "m", "--accept-model", ","}).find("--accept-model") !=
        std::string::npos);
}

TEST_CASE("a key is what a header can carry, wherever it comes from") {
  constexpr const char *kVariable = "CUA_S1_API_KEY";
  const std::string path = std::filesystem::temp_directory_path() /
                           ("options_test." + std::to_string(::getpid()) + ".keys");
  const auto write = [&](std::string_view text) { std::ofstream(path) << text; };
  const std::vector<const char *> with_file{"--model", "m", "--api-key-file", path.c_str()};
  using Keys = std::vector<std::string>;
  for (const char *around : {"key\n", "key\r\n", " key", "\tkey \t"}) {
    CHECK(parse({"--model", "m"}, {{kVariable, around}}).api_keys == Keys{"key"});
    write(around);
    CHECK(parse(with_file).api_keys == Keys{"key"});
  }
  CHECK(parse({"--model", "m"}, {{kVariable, "a key"}}).api_keys == Keys{"a key"});
  for (const char *bad : {"ke\ty", "\x01", "\xef\xbb\xbfkey", "key\rother", "k\xc3\xa9y"}) {
    const std::string from_variable = refusal({"--model", "m"}, {{kVariable, bad}});
    CHECK(from_variable.find(kVariable) != std::string::npos);
    CHECK(from_variable.find("key ") != std::string::npos);
    write(bad);
    CHECK(refusal(with_file).find(path) != std::string::npos);
  }
  write(std::string_view("k\0ey", 4));
  CHECK(refusal(with_file).find(path) != std::string::npos);
  CHECK(refusal({"--model", "m"}, {{kVariable, " \n"}}).find(kVariable) != std::string::npos);
  std::remove(path.c_str());
}

TEST_CASE("a folder is neither settings nor keys") {
  for (const char *flag : {"--config", "--api-key-file"}) {
    CHECK(refusal({"--model", "m", flag, "/"}).find("cannot be read") != std::string::npos);
  }
}
