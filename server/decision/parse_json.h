// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string_view>

#include "decision/json.h"

namespace cua_server::decision {

inline constexpr size_t kMostLevels = 127;  // of nested containers, the outermost included
inline constexpr size_t kMostIntegerDigits = 4300;

// One JSON value and nothing else. Stricter than most parsers: see docs/http.md for what is
// refused. Throws RequestError 400 that says what is wrong, and where or which key. The text must
// outlive the document.
JsonDocument parse_json(std::string_view text);

}  // namespace cua_server::decision
