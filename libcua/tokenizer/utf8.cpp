// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

#include <cstring>

namespace cua::tokenizer {

size_t first_malformed_byte(std::string_view text) {
  const auto *bytes = reinterpret_cast<const uint8_t *>(text.data());
  const size_t size = text.size();
  const auto continues = [&](size_t at) { return at < size && (bytes[at] & 0xC0) == 0x80; };
  size_t i = 0;
  while (i < size) {
    if (bytes[i] < 0x80) {
      uint64_t word;
      while (i + sizeof word <= size) {
        std::memcpy(&word, bytes + i, sizeof word);
        if (word & 0x8080808080808080u) break;
        i += sizeof word;
      }
      while (i < size && bytes[i] < 0x80) ++i;
      continue;
    }
    // The second byte's range is narrower behind E0, ED, F0 and F4 (Unicode, table 3-7).
    const uint8_t lead = bytes[i];
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    size_t length = 0;
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return i;
    }
    if (i + 1 >= size || bytes[i + 1] < low || bytes[i + 1] > high) return i;
    for (size_t k = 2; k < length; ++k) {
      if (!continues(i + k)) return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

char32_t decode_utf8(std::string_view text, size_t &offset) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[offset + k]); };
  const auto tail = [&](size_t k) { return static_cast<char32_t>(byte(k) & 0x3F); };
  const uint8_t lead = byte(0);
  char32_t code_point = lead;
  size_t length = 1;
  if (lead >= 0xF0) {
    code_point = static_cast<char32_t>(lead & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
    length = 4;
  } else if (lead >= 0xE0) {
    code_point = static_cast<char32_t>(lead & 0x0F) << 12 | tail(1) << 6 | tail(2);
    length = 3;
  } else if (lead >= 0x80) {
    code_point = static_cast<char32_t>(lead & 0x1F) << 6 | tail(1);
    length = 2;
  }
  offset += length;
  return code_point;
}

void append_utf8(char32_t code_point, std::string &text) {
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | (code_point >> 6));
    text += tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | (code_point >> 12));
    text += tail(6);
    text += tail(0);
  } else {
    text += static_cast<char>(0xF0 | (code_point >> 18));
    text += tail(12);
    text += tail(6);
    text += tail(0);
  }
}

}  // namespace cua::tokenizer
