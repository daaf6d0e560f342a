// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

#include <string>
#include <vector>

#include "catch.h"

using cua::tokenizer::append_utf8;
using cua::tokenizer::decode_utf8;
using cua::tokenizer::first_malformed_byte;

namespace {

constexpr size_t kWellFormed = std::string_view::npos;

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

}  // namespace

TEST_CASE("every code point passes and comes back; surrogates do not pass") {
  std::string all;
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    append_utf8(c, text);
    if (c >= 0xD800 && c <= 0xDFFF) {
      if (first_malformed_byte(text) != 0) FAIL("surrogate " << static_cast<uint32_t>(c));
      continue;
    }
    size_t offset = 0;
    if (first_malformed_byte(text) != kWellFormed || decode_utf8(text, offset) != c ||
        offset != text.size()) {
      FAIL("code point " << static_cast<uint32_t>(c));
    }
    all += text;
  }
  CHECK(first_malformed_byte(all) == kWellFormed);
}

TEST_CASE("the well-formed sequences of up to four bytes are exactly the code points") {
  // One and two bytes in full; longer ones over the bytes where a rule changes.
  const std::vector<int> edges = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1,
                                  0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3,
                                  0xF4, 0xF5, 0xF7, 0xF8, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF};
  // Decodes as the bits say, without any check, and asks whether that spells the same bytes.
  const auto is_one_character = [](const std::string &text) {
    static constexpr int kLeadBits[] = {0x7F, 0x1F, 0x0F, 0x07};
    const size_t tail = text.size() - 1;
    char32_t c = static_cast<uint8_t>(text[0]) & kLeadBits[tail];
    for (size_t i = 1; i <= tail; ++i) c = c << 6 | (static_cast<uint8_t>(text[i]) & 0x3F);
    std::string spelled;
    append_utf8(c, spelled);
    return c < 0x110000 && !(c >= 0xD800 && c <= 0xDFFF) && spelled == text;
  };
  const auto expected = [&](const std::string &text) {
    for (size_t i = 0; i < text.size();) {
      size_t length = 1;
      while (length <= 4 && i + length <= text.size() &&
             !is_one_character(text.substr(i, length))) {
        ++length;
      }
      if (length > 4 || i + length > text.size()) return i;
      i += length;
    }
    return kWellFormed;
  };
  const auto check = [&](const std::string &text) {
    if (first_malformed_byte(text) != expected(text)) {
      std::string shown;
      for (const char c : text) shown += std::to_string(static_cast<uint8_t>(c)) + ' ';
      FAIL("bytes " << shown);
    }
  };
  for (int a = 0; a < 256; ++a) {
    check(bytes({a}));
    for (int b = 0; b < 256; ++b) check(bytes({a, b}));
  }
  for (const int a : edges) {
    for (const int b : edges) {
      for (const int c : edges) {
        check(bytes({a, b, c}));
        for (const int d : edges) check(bytes({a, b, c, d}));
      }
    }
  }
}

TEST_CASE("the offset of a fault is that of its character, at every alignment") {
  for (size_t before = 0; before < 40; ++before) {
    const std::string text(before, 'x');
    CHECK(first_malformed_byte(text + bytes({0xFF}) + "xxxxxxxxxxxx") == before);
    CHECK(first_malformed_byte(text + bytes({0xE2, 0x82})) == before);
    CHECK(first_malformed_byte(text + bytes({0xE2, 0x82, 0xAC}) + text) == kWellFormed);
    CHECK(first_malformed_byte(text + bytes({0xE2, 0x82, 0xAC, 0x80}) + text) == before + 3);
  }
}
