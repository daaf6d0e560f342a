// SPDX-License-Identifier: Apache-2.0
//
// JSON as Python writes it: json.dumps(value, ensure_ascii=False).
#pragma once
#include <string>
#include <string_view>

#include "decision/json.h"

namespace cua_server::decision {

// Appends `text` escaped, without quotes: only ", \ and what is below 0x20.
void append_escaped(std::string &out, std::string_view text);

// Appends repr of a finite float: the shortest digits that round-trip; fixed notation for decimal exponents
// of -4 to 15, else scientific with a sign and at least two digits.
void append_repr(std::string &out, double value);

// Separators ", " and ": ", members in order.
std::string python_json(const Json &value);

}  // namespace cua_server::decision
