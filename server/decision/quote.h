// SPDX-License-Identifier: Apache-2.0
//
// A client's text inside a message: short, quoted, valid UTF-8.
#pragma once
#include <string>
#include <string_view>

namespace cua_server::decision {

// At most about 80 bytes of a text, cut where a character ends, with an ellipsis. Control
// characters are escaped as in JSON: a message is one line, and what() stops at a NUL.
std::string cut_short(std::string_view text);
// The same in double quotes.
std::string quote_short(std::string_view text);
// Ill-formed bytes become U+FFFD.
std::string make_utf8(std::string_view text);

}  // namespace cua_server::decision
