// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

namespace cua_server {
namespace {

namespace po = boost::program_options;

// Every setting: its flag, what it takes, what it does. The variable is CUA_S1_ and the flag in
// capitals; in a file of --config it is written as the flag without its dashes.
struct Setting {
  const char *flag, *takes, *what;
  bool several = false;  // may be given several times, or several with commas
};
constexpr Setting kSettings[] = {
    {"model", "DIR", "folder of the merged checkpoint"},
    {"host", "HOST", "address to listen on; 127.0.0.1"},
    {"port", "PORT", "port, 0 picks a free one; 8000"},
    {"listen", "ADDRESS", "HOST:PORT or unix:PATH, instead of --host and --port or beside them",
     true},
    {"cuda-lib", "FILE", "the library; else the one beside this program"},
    {"graph", "MODE", "CUDA graphs: 0 off, 1 exact lengths, bucket; 0"},
    {"plans", "FILE",
     "plans of matrix products for this GPU, by cua-bench tune; else timed at load"},
    {"device", "cpu|N", "cpu, or the number of the GPU; 0"},
    {"devices", "LIST", "several, with commas: one engine each, one queue"},
    {"threads", "N", "threads of the CPU library; 0 is all cores"},
    {"workers", "N", "threads that parse and tokenise; 0 is one for each core, at most 8"},
    {"batch", "on|off", "score prompts that wait together; on"},
    {"batch-wait-us", "N", "wait so long for company; 0"},
    {"max-batch-tokens", "N", "of one pass; 0 is the library's choice"},
    {"max-connections", "N", "at the same time; 4096"},
    {"max-queue-requests", "N", "questions that may wait; 1024"},
    {"max-queue-tokens", "N", "tokens that may wait; 4000000"},
    {"request-timeout", "SECONDS", "503 for a decision that waits longer; 0 is for ever"},
    {"accept-model", "NAME", "another name that \"model\" may be", true},
    {"api-key-file", "FILE", "keys, one a line: decisions need one as Bearer"},
    {"cors-origin", "ORIGIN", "whose pages in a browser may ask, as https://app.example; * is all",
     true},
    {"log-format", "text|json", "of the lines on stderr; text"},
    {"log-level", "LEVEL", "error, warning, info or debug; info"},
    {"drain-delay", "SECONDS",
     "after a signal say not ready but still answer for so long, then end; 0"},
    {"shutdown-timeout", "SECONDS", "end after a signal though not all is answered; 0 is never"}};
constexpr Setting kSwitches[] = {
    {"exit-on-device-failure", "0|1",
     "stop with status 6 when the device is lost, so that a supervisor starts it again"},
    {"protect-metrics", "0|1", "/metrics needs a key as well"},
    {"no-ui", "0|1", "no page for a browser at /"},
    {"demo", "0|1", "the demonstration model, on the CPU unless a device is named; not Cua-S1"},
    {"check", "0|1", "load, make one decision, tell what there is, and stop"}};

po::options_description description() {
  po::options_description flags("Options");
  for (const Setting &setting : kSettings) {
    if (setting.several) {
      flags.add_options()(setting.flag,
                          po::value<std::vector<std::string>>()->value_name(setting.takes),
                          (std::string(setting.what) + "; several times, or with commas").c_str());
    } else {
      flags.add_options()(setting.flag, po::value<std::string>()->value_name(setting.takes),
                          setting.what);
    }
  }
  for (const Setting &setting : kSwitches) flags.add_options()(setting.flag, setting.what);
  flags.add_options()("config", po::value<std::string>()->value_name("FILE"),
                      "settings as lines of NAME = VALUE")("help", "show this and stop")(
      "version", "show the version and stop");
  return flags;
}

// What a file of --config may hold.
po::options_description file_description() {
  po::options_description settings;
  for (const Setting &setting : kSettings) {
    if (setting.several) {
      settings.add_options()(setting.flag, po::value<std::vector<std::string>>());
    } else {
      settings.add_options()(setting.flag, po::value<std::string>());
    }
  }
  for (const Setting &setting : kSwitches) {
    settings.add_options()(setting.flag, po::value<std::string>());
  }
  return settings;
}

std::string variable_of(std::string_view flag) {
  std::string name = "CUA_S1_";
  for (const char c : flag) {
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  return name;
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

std::chrono::milliseconds seconds(const std::string &source, const std::string &text) {
  double value = -1;
  const char *const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end || !(value >= 0) || value > 86400) {
    throw UsageError(source + " is \"" + text + "\"; seconds of 0 to 86400 are needed");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(value * 1000)));
}

Device device_of(const std::string &source, const std::string &text) {
  if (text == "cpu") return {true, 0};
  try {
    return {false, number<int32_t>(source, text, 0, 1023)};
  } catch (const UsageError &) {
    throw UsageError(source + " is \"" + text + "\"; cpu or the number of a GPU is needed");
  }
}

std::vector<Device> devices_of(const std::string &source, const std::string &text) {
  std::vector<Device> devices;
  std::string part;
  std::istringstream parts(text + ",");
  while (std::getline(parts, part, ',')) devices.push_back(device_of(source, part));
  const auto on_cpu = std::count_if(devices.begin(), devices.end(),
                                    [](const Device &device) { return device.is_cpu; });
  if (on_cpu != 0 && static_cast<size_t>(on_cpu) != devices.size()) {
    throw UsageError(source + " is \"" + text +
                     "\"; the CPU and GPUs have different libraries, and cannot be mixed");
  }
  return devices;
}

// HOST:PORT, [IPV6]:PORT or unix:PATH.
http::Address address_of(const std::string &source, const std::string &text) {
  constexpr size_t kMostPath = sizeof(sockaddr_un::sun_path) - 1;
  constexpr std::string_view kUnix = "unix:";
  if (text.compare(0, kUnix.size(), kUnix) == 0) {
    const std::string path = text.substr(kUnix.size());
    if (path.empty() || path.size() > kMostPath) {
      throw UsageError(source + " is \"" + text + "\"; a path of 1 to " +
                       std::to_string(kMostPath) + " bytes is needed after unix:");
    }
    return {{}, 0, path};
  }
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (colon == text.npos || host.empty() || (!bracketed && host.find(':') != host.npos)) {
    throw UsageError(source + " is \"" + text +
                     "\"; HOST:PORT, [IPV6]:PORT or unix:PATH is needed");
  }
  return {host, number<uint16_t>(source, text.substr(colon + 1), 0, 65535), {}};
}

// A key without the blanks and line ends around it, which no header carries; empty: there is none.
std::string key_of(const std::string &source, const std::string &text) {
  constexpr const char *kAround = " \t\r\n";
  const size_t first = text.find_first_not_of(kAround);
  if (first == text.npos) return {};
  std::string key = text.substr(first, text.find_last_not_of(kAround) + 1 - first);
  if (std::any_of(key.begin(), key.end(), [](char c) { return c < ' ' || c > '~'; })) {
    throw UsageError(source + " holds a key that no client can send: visible ASCII is needed");
  }
  return key;
}

bool flag_of(const std::string &source, const std::string &text) {
  if (text == "0" || text == "1") return text == "1";
  throw UsageError(source + " is \"" + text + "\"; 0 or 1 is needed");
}

// Looks a setting up: the flag, then the variable, then the file. An empty variable is as good as
// none.
class Settings {
 public:
  Settings(const po::variables_map &given, const po::variables_map &file, std::string file_name)
      : given_(given), file_(file), file_name_(std::move(file_name)) {}

  // Sets source() to the name of where it was found.
  std::optional<std::string> find(const std::string &flag, bool takes_value = true) {
    if (given_.count(flag) != 0) {
      source_ = "--" + flag;
      rank_ = 2;
      return takes_value ? text_of(given_[flag]) : "1";
    }
    const std::string variable = variable_of(flag);
    const char *const text = std::getenv(variable.c_str());
    if (text != nullptr && *text != '\0') {
      source_ = variable;
      rank_ = 1;
      return text;
    }
    if (file_.count(flag) != 0) {
      source_ = flag + " in " + file_name_;
      rank_ = 0;
      return text_of(file_[flag]);
    }
    return std::nullopt;
  }
  const std::string &source() const { return source_; }
  int rank() const { return rank_; }  // of that source: the higher wins
  // A setting of several values; empty where there is none.
  std::vector<std::string> find_all(const std::string &flag) {
    std::vector<std::string> all;
    const auto text = find(flag);
    if (!text) return all;
    std::istringstream parts(*text + ",");
    for (std::string part; std::getline(parts, part, ',');) {
      if (part.empty()) throw UsageError(source_ + " is \"" + *text + "\"; a part of it is empty");
      all.push_back(part);
    }
    return all;
  }

 private:
  static std::string text_of(const po::variable_value &value) {
    const auto *const several = boost::any_cast<std::vector<std::string>>(&value.value());
    if (several == nullptr) return value.as<std::string>();
    std::string text;
    for (const std::string &one : *several) text += (text.empty() ? "" : ",") + one;
    return text;
  }

  const po::variables_map &given_, &file_;
  std::string file_name_, source_;
  int rank_ = 0;
};

}  // namespace

std::string usage() {
  std::string text =
      "usage: cua-server --model DIR [options]\n       cua-server --demo [options]\n\n";
  std::ostringstream flags;
  flags << description();
  text += flags.str() +
          "\nEvery option but the last two has a variable, CUA_S1_ and its name in capitals:";
  const auto add = [&](const Setting &setting) { text += "\n  " + variable_of(setting.flag); };
  for (const Setting &setting : kSettings) add(setting);
  for (const Setting &setting : kSwitches) add(setting);
  return text +
         "\n  CUA_S1_CONFIG\n  CUA_S1_API_KEY (a key beside those of --api-key-file)"
         "\nA flag wins over its variable, a variable over --config.\n"
         "\nExit status: 0 stopped by a signal, 2 usage, 3 library refused, 4 model or device "
         "refused,\n5 cannot listen, 6 device failed.\n";
}

Options parse_options(int argc, const char *const *argv) {
  po::variables_map given, file;
  std::string file_name;
  try {
    const auto style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(argc, argv)
                  .options(description())
                  .positional(po::positional_options_description())
                  .style(style)
                  .run(),
              given);
    if (given.count("config") != 0) {
      file_name = given["config"].as<std::string>();
    } else if (const char *const text = std::getenv("CUA_S1_CONFIG"); text != nullptr) {
      file_name = text;
    }
  } catch (const po::error &error) {
    throw UsageError(error.what());
  }
  Options options;
  options.help = given.count("help") != 0;
  options.version = given.count("version") != 0;
  if (options.help || options.version) return options;
  if (!file_name.empty()) {
    std::ifstream stream(file_name);
    if (!stream) throw UsageError("--config " + file_name + " cannot be read");
    try {
      po::store(po::parse_config_file(stream, file_description()), file);
    } catch (const po::error &error) {
      throw UsageError(file_name + ": " + error.what());
    }
    if (stream.bad()) throw UsageError("--config " + file_name + " cannot be read");
  }

  Settings settings(given, file, file_name);
  int demo = -1;  // the rank of what asks for it
  if (const auto wanted = settings.find("demo", false);
      wanted && flag_of(settings.source(), *wanted)) {
    demo = settings.rank();
  }
  if (given.count("demo") != 0 && given.count("model") != 0) {
    throw UsageError("--demo has a model of its own; leave --model or --demo out");
  }
  // The higher wins, a model over a demonstration of its rank.
  const auto model = settings.find("model");
  if (model && settings.rank() >= demo) options.model = *model;
  if (options.model.empty() && demo < 0) {
    throw UsageError(
        "no model: give --model or CUA_S1_MODEL, the folder of a merged checkpoint, "
        "or --demo to try the demonstration model");
  }
  if (options.model.empty()) options.devices = {{true, 0}};
  http::Address tcp{"127.0.0.1", 8000, {}};
  const auto host = settings.find("host");
  if (host) tcp.host = *host;
  if (tcp.host.empty()) throw UsageError("--host is empty; an address is needed");
  const auto port = settings.find("port");
  if (port) tcp.port = number<uint16_t>(settings.source(), *port, 0, 65535);
  const std::vector<std::string> listen = settings.find_all("listen");
  if (listen.empty() || host || port) options.addresses.push_back(tcp);
  for (const std::string &address : listen) {
    options.addresses.push_back(address_of(settings.source(), address));
  }
  if (const auto library = settings.find("cuda-lib")) {
    if (library->empty()) throw UsageError("--cuda-lib is empty; a file is needed");
    options.cuda_lib = *library;
  }
  if (const auto graph = settings.find("graph")) {
    if (*graph != "0" && *graph != "1" && *graph != "bucket") {
      throw UsageError(settings.source() + " is \"" + *graph + "\"; 0, 1 or bucket is needed");
    }
    options.graph_mode = *graph == "0" ? 0 : *graph == "1" ? 1 : 2;
  }
  int device_rank = -1;
  if (const auto device = settings.find("device")) {
    options.devices = {device_of(settings.source(), *device)};
    device_rank = settings.rank();
  }
  // The higher wins, a list over one device of its rank.
  if (const auto devices = settings.find("devices"); devices && settings.rank() >= device_rank) {
    options.devices = devices_of(settings.source(), *devices);
  }
  if (const auto plans = settings.find("plans")) {
    if (plans->empty()) throw UsageError("--plans is empty; a file is needed");
    options.plans = *plans;
  }
  if (const auto threads = settings.find("threads")) {
    options.threads = number<uint32_t>(settings.source(), *threads, 0, 1024);
  }
  options.workers = 0;
  if (const auto workers = settings.find("workers")) {
    options.workers = number<uint32_t>(settings.source(), *workers, 0, 256);
  }
  if (options.workers == 0) {
    options.workers = std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
  }
  if (const auto batch = settings.find("batch")) {
    if (*batch != "on" && *batch != "off") {
      throw UsageError(settings.source() + " is \"" + *batch + "\"; on or off is needed");
    }
    options.batch = *batch == "on";
  }
  if (const auto wait = settings.find("batch-wait-us")) {
    options.batch_wait =
        std::chrono::microseconds(number<uint32_t>(settings.source(), *wait, 0, 1'000'000));
  }
  if (const auto tokens = settings.find("max-batch-tokens")) {
    options.max_batch_tokens = number<uint32_t>(settings.source(), *tokens, 0, 1u << 24);
  }
  if (const auto connections = settings.find("max-connections")) {
    options.max_connections = number<uint32_t>(settings.source(), *connections, 1, 1u << 20);
  }
  if (const auto requests = settings.find("max-queue-requests")) {
    options.max_queue_requests = number<uint64_t>(settings.source(), *requests, 1, 1u << 24);
  }
  if (const auto tokens = settings.find("max-queue-tokens")) {
    options.max_queue_tokens = number<uint64_t>(settings.source(), *tokens, 1, uint64_t{1} << 40);
  }
  if (const auto limit = settings.find("request-timeout")) {
    options.request_timeout = seconds(settings.source(), *limit);
  }
  if (const auto delay = settings.find("drain-delay")) {
    options.drain_delay = seconds(settings.source(), *delay);
  }
  if (const auto limit = settings.find("shutdown-timeout")) {
    options.shutdown_timeout = seconds(settings.source(), *limit);
  }
  options.accepted_models = settings.find_all("accept-model");
  options.cors_origins = settings.find_all("cors-origin");
  for (const std::string &origin : options.cors_origins) {
    const size_t host = origin.find("://");
    if (origin != "*" && (host == origin.npos || origin.find('/', host + 3) != origin.npos)) {
      throw UsageError(settings.source() + " is \"" + origin +
                       "\"; an origin such as https://app.example is needed, without a path");
    }
  }
  if (const auto file = settings.find("api-key-file")) {
    std::ifstream stream(*file);
    if (!stream) throw UsageError(settings.source() + ": " + *file + " cannot be read");
    for (std::string line; std::getline(stream, line);) {
      if (!line.empty() && line.front() == '#') continue;
      const std::string key = key_of(settings.source() + ": " + *file, line);
      if (!key.empty()) options.api_keys.push_back(key);
    }
    if (stream.bad()) throw UsageError(settings.source() + ": " + *file + " cannot be read");
    if (options.api_keys.empty()) {
      throw UsageError(settings.source() + ": " + *file + " holds no key");
    }
  }
  if (const char *const key = std::getenv("CUA_S1_API_KEY"); key != nullptr && *key != '\0') {
    options.api_keys.push_back(key_of("CUA_S1_API_KEY", key));
    if (options.api_keys.back().empty()) {
      throw UsageError("CUA_S1_API_KEY holds blanks alone; a key is needed");
    }
  }
  if (const auto format = settings.find("log-format")) {
    if (*format != "text" && *format != "json") {
      throw UsageError(settings.source() + " is \"" + *format + "\"; text or json is needed");
    }
    options.log_json = *format == "json";
  }
  if (const auto level = settings.find("log-level")) {
    static constexpr const char *kLevels[] = {"error", "warning", "info", "debug"};
    const auto *const at = std::find(std::begin(kLevels), std::end(kLevels), *level);
    if (at == std::end(kLevels)) {
      throw UsageError(settings.source() + " is \"" + *level +
                       "\"; error, warning, info or debug is needed");
    }
    options.log_level = static_cast<int>(at - kLevels);
  }
  if (const auto protect = settings.find("protect-metrics", false)) {
    options.protect_metrics = flag_of(settings.source(), *protect);
  }
  if (const auto exit = settings.find("exit-on-device-failure", false)) {
    options.exit_on_device_failure = flag_of(settings.source(), *exit);
  }
  if (const auto no_page = settings.find("no-ui", false)) {
    options.has_page = !flag_of(settings.source(), *no_page);
  }
  if (const auto check = settings.find("check", false)) {
    options.check = flag_of(settings.source(), *check);
  }
  return options;
}

}  // namespace cua_server
