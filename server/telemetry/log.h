// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

namespace cua_server::telemetry {

enum class Level { error, warning, info, debug };

// One line on stderr: UTC time, level, text. Control characters are shown as \xNN, so that a text
// is always one line. Thread safe.
void log(Level level, std::string_view text);

}  // namespace cua_server::telemetry
