// SPDX-License-Identifier: Apache-2.0
#include "telemetry/log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

namespace cua_server::telemetry {

void log(Level level, std::string_view text) {
  static constexpr const char *kNames[] = {"error", "warning", "info", "debug"};
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  char head[64];
  std::snprintf(head, sizeof head, "%s.%03dZ %s ", stamp, static_cast<int>(milliseconds),
                kNames[static_cast<int>(level)]);
  std::string line = head;
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
  line += '\n';
  // One write keeps lines of several threads apart.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace cua_server::telemetry
