// SPDX-License-Identifier: Apache-2.0
#include "telemetry/log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>

namespace cua_server::telemetry {
namespace {

LogFormat format_in_use = LogFormat::text;
Level least_level = Level::info;

void append_escaped(std::string &line, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      line += escaped;
    } else {
      line += c;
    }
  }
}

// Bytes that are not ASCII become U+FFFD each: a log line is valid JSON whatever it tells of.
std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    } else if (byte >= 0x80) {
      out += "\\ufffd";
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

void set_log(LogFormat format, Level least) {
  format_in_use = format;
  least_level = least;
}

bool logs(Level level) { return level <= least_level; }

void log(Level level, std::string_view text, const Fields &fields) {
  if (!logs(level)) return;
  static constexpr const char *kNames[] = {"error", "warning", "info", "debug"};
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[32], time[48];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(time, sizeof time, "%s.%03dZ", stamp, static_cast<int>(milliseconds));
  const char *const name = kNames[static_cast<int>(level)];
  std::string line;
  if (format_in_use == LogFormat::json) {
    line = std::string("{\"time\":\"") + time + "\",\"level\":\"" + name +
           "\",\"message\":" + json_text(text);
    for (const auto &[key, value] : fields) line += "," + json_text(key) + ":" + json_text(value);
    line += "}";
  } else {
    line = std::string(time) + " " + name + " ";
    append_escaped(line, text);
    for (const auto &[key, value] : fields) {
      line += " " + std::string(key) + "=";
      append_escaped(line, value);
    }
  }
  line += '\n';
  // One write keeps lines of several threads apart.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace cua_server::telemetry
