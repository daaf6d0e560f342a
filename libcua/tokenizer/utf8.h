// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cua::tokenizer {

// Offset of the first byte that no well-formed UTF-8 text has there (surrogates, overlong forms and
// code points above U+10FFFF count as malformed), or npos.
size_t first_malformed_byte(std::string_view text);

// The code point that starts at text[offset] of a well-formed text; moves offset behind it.
char32_t decode_utf8(std::string_view text, size_t &offset);

// Appends the bytes of a code point.
void append_utf8(char32_t code_point, std::string &text);

}  // namespace cua::tokenizer
