// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace cua_server::telemetry {

enum class Level { error, warning, info, debug };
enum class LogFormat { text, json };

// Before there are other threads.
void set_log(LogFormat format, Level least);
bool logs(Level level);

// One line on stderr: UTC time, level, text, and fields as name=value; or the same as a JSON
// object. Control characters are shown escaped, so that a text is always one line. Thread safe.
using Fields = std::initializer_list<std::pair<std::string_view, std::string>>;
void log(Level level, std::string_view text, const Fields &fields = {});

// Several of them, written together at the end of its life.
class LogLines {
 public:
  LogLines() = default;
  ~LogLines();
  LogLines(const LogLines &) = delete;
  LogLines &operator=(const LogLines &) = delete;
  void add(Level level, std::string_view text, const Fields &fields = {});

 private:
  std::string lines_;
};

}  // namespace cua_server::telemetry
