// SPDX-License-Identifier: Apache-2.0
#include "telemetry/log.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>

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
void append_json(std::string &out, std::string_view text) {
  out += '"';
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
  out += '"';
}

// UTC to the millisecond; all but that is made once a second.
void append_time(std::string &line) {
  thread_local std::time_t made = -1;
  thread_local std::string text;
  const auto now = std::chrono::system_clock::now();
  if (const std::time_t seconds = std::chrono::system_clock::to_time_t(now); seconds != made) {
    made = seconds;
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char stamp[32];
    text.assign(stamp, std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S.", &utc));
  }
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  const std::string digits = std::to_string(1000 + milliseconds);  // with its leading zeros
  line += text;
  line += std::string_view(digits).substr(1);
  line += 'Z';
}

void append_line(std::string &line, Level level, std::string_view text, const Fields &fields) {
  static constexpr std::string_view kNames[] = {"error", "warning", "info", "debug"};
  const std::string_view name = kNames[static_cast<int>(level)];
  if (format_in_use == LogFormat::json) {
    line += "{\"time\":\"";
    append_time(line);
    line += "\",\"level\":\"";
    line += name;
    line += "\",\"message\":";
    append_json(line, text);
    for (const auto &[key, value] : fields) {
      line += ',';
      append_json(line, key);
      line += ':';
      append_json(line, value);
    }
    line += '}';
  } else {
    append_time(line);
    line += ' ';
    line += name;
    line += ' ';
    append_escaped(line, text);
    for (const auto &[key, value] : fields) {
      line += ' ';
      line += key;
      line += '=';
      append_escaped(line, value);
    }
  }
  line += '\n';
}

}  // namespace

void set_log(LogFormat format, Level least) {
  format_in_use = format;
  least_level = least;
}

bool logs(Level level) { return level <= least_level; }

void log(Level level, std::string_view text, const Fields &fields) {
  LogLines().add(level, text, fields);
}

LogLines::~LogLines() {
  if (lines_.empty()) return;
  static std::mutex mutex;  // keeps lines of several threads apart, however long
  const std::lock_guard lock(mutex);
  std::string_view rest = lines_;
  while (!rest.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // nobody to tell
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

void LogLines::add(Level level, std::string_view text, const Fields &fields) {
  if (logs(level)) append_line(lines_, level, text, fields);
}

}  // namespace cua_server::telemetry
