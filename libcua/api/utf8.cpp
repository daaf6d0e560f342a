// SPDX-License-Identifier: Apache-2.0
#include "api/utf8.h"

#include <cstdint>
#include <cstring>

namespace cua::api {

std::optional<size_t> invalid_utf8(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    uint64_t word;
    if (text.size() - i >= sizeof word) {  // ASCII, eight bytes at a time
      std::memcpy(&word, text.data() + i, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        i += sizeof word;
        continue;
      }
    }
    const unsigned char lead = at(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    size_t more;                            // continuation bytes
    unsigned char low = 0x80, high = 0xbf;  // bounds of the first of them
    if (lead >= 0xc2 && lead <= 0xdf) {
      more = 1;
    } else if (lead >= 0xe0 && lead <= 0xef) {
      more = 2;
      if (lead == 0xe0) low = 0xa0;   // overlong
      if (lead == 0xed) high = 0x9f;  // surrogates
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      more = 3;
      if (lead == 0xf0) low = 0x90;   // overlong
      if (lead == 0xf4) high = 0x8f;  // above U+10FFFF
    } else {
      return i;
    }
    if (text.size() - i <= more) return i;
    for (size_t j = 1; j <= more; ++j) {
      if (at(i + j) < low || at(i + j) > high) return i;
      low = 0x80;
      high = 0xbf;
    }
    i += more + 1;
  }
  return std::nullopt;
}

size_t cut(std::string_view text, size_t most) noexcept {
  if (text.size() <= most) return text.size();
  size_t length = most;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  return length;
}

}  // namespace cua::api
