// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <boost/program_options.hpp>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

namespace cua_server {
namespace {

namespace po = boost::program_options;

po::options_description description() {
  po::options_description flags("Options");
  const auto text = [] { return po::value<std::string>(); };
  flags.add_options()("model", text()->value_name("DIR"),
                      "folder of the merged checkpoint [CUA_S1_MODEL]")(
      "host", text()->value_name("HOST"), "address to listen on; 127.0.0.1 [CUA_S1_HOST]")(
      "port", text()->value_name("PORT"), "port, 0 picks a free one; 8000 [CUA_S1_PORT]")(
      "cuda-lib", text()->value_name("FILE"),
      "the library; else the one beside this program [CUA_S1_CUDA_LIB]")(
      "graph", text()->value_name("MODE"),
      "CUDA graphs: 0 off, 1 exact lengths, bucket; 0 [CUA_S1_GRAPH]")(
      "device", text()->value_name("cpu|N"), "cpu, or the number of the GPU; 0")(
      "threads", text()->value_name("N"), "threads of the CPU library; 0 is all cores")(
      "exit-on-device-failure", po::bool_switch(),
      "stop with status 6 when the device is lost, so that a supervisor starts it again "
      "[CUA_S1_EXIT_ON_DEVICE_FAILURE]")("help", "show this and stop")("version",
                                                                       "show the version and stop");
  return flags;
}

// A whole number of `least` to `most`, or an error that names where it came from.
template <class Number>
Number number(const std::string &source, const std::string &text, Number least, Number most) {
  Number value{};
  const char *const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end || text.empty() || value < least || value > most) {
    throw UsageError(source + " is \"" + text + "\"; a whole number of " + std::to_string(least) +
                     " to " + std::to_string(most) + " is needed");
  }
  return value;
}

}  // namespace

std::string usage() {
  std::string text = "usage: cua-server --model DIR [options]\n\n";
  std::ostringstream flags;
  flags << description();
  return text + flags.str() +
         "\nExit status: 0 stopped by a signal, 2 usage, 3 library refused, 4 model or device "
         "refused,\n5 cannot listen, 6 device failed.\n";
}

Options parse_options(int argc, const char *const *argv) {
  po::variables_map given;
  try {
    const auto style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(argc, argv)
                  .options(description())
                  .positional(po::positional_options_description())
                  .style(style)
                  .run(),
              given);
  } catch (const po::error &error) {
    throw UsageError(error.what());
  }
  Options options;
  options.help = given.count("help") != 0;
  options.version = given.count("version") != 0;
  if (options.help || options.version) return options;

  // The flag's value, else the variable's; sets `source` to the name of the one taken. An empty
  // variable is as good as none.
  std::string source;
  const auto value = [&](const char *flag, const char *variable) -> std::optional<std::string> {
    if (flag != nullptr && given.count(flag) != 0) {
      source = std::string("--") + flag;
      return given[flag].as<std::string>();
    }
    const char *const text = variable != nullptr ? std::getenv(variable) : nullptr;
    if (text == nullptr || *text == '\0') return std::nullopt;
    source = variable;
    return text;
  };
  if (const auto model = value("model", "CUA_S1_MODEL")) options.model = *model;
  if (options.model.empty()) {
    throw UsageError("no model: give --model or CUA_S1_MODEL, the folder of a merged checkpoint");
  }
  if (const auto host = value("host", "CUA_S1_HOST")) options.host = *host;
  if (options.host.empty()) throw UsageError("--host is empty; an address is needed");
  if (const auto port = value("port", "CUA_S1_PORT")) {
    options.port = number<uint16_t>(source, *port, 0, 65535);
  }
  if (const auto file = value("cuda-lib", "CUA_S1_CUDA_LIB")) {
    if (file->empty()) throw UsageError("--cuda-lib is empty; a file is needed");
    options.cuda_lib = *file;
  }
  if (const auto graph = value("graph", "CUA_S1_GRAPH")) {
    if (*graph != "0" && *graph != "1" && *graph != "bucket") {
      throw UsageError(source + " is \"" + *graph + "\"; 0, 1 or bucket is needed");
    }
    options.graph_mode = *graph == "0" ? 0 : *graph == "1" ? 1 : 2;
  }
  if (const auto device = value("device", nullptr)) {
    options.device_is_cpu = *device == "cpu";
    if (!options.device_is_cpu) {
      try {
        options.device = number<int32_t>(source, *device, 0, 1023);
      } catch (const UsageError &) {
        throw UsageError("--device is \"" + *device + "\"; cpu or the number of a GPU is needed");
      }
    }
  }
  if (const auto threads = value("threads", nullptr)) {
    options.threads = number<uint32_t>(source, *threads, 0, 1024);
  }
  options.exit_on_device_failure = given["exit-on-device-failure"].as<bool>();
  if (const auto exit = value(nullptr, "CUA_S1_EXIT_ON_DEVICE_FAILURE")) {
    if (*exit != "0" && *exit != "1") {
      throw UsageError(source + " is \"" + *exit + "\"; 0 or 1 is needed");
    }
    options.exit_on_device_failure = options.exit_on_device_failure || *exit == "1";
  }
  return options;
}

}  // namespace cua_server
