// SPDX-License-Identifier: Apache-2.0
#include "api/utf8.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.h"

using cua::api::cut;
using cua::api::invalid_utf8;

namespace {

// The definition turned round: all that is well-formed is what spelling a scalar value gives.
std::string spell(uint32_t c) {
  const auto byte = [](uint32_t b) { return static_cast<char>(static_cast<unsigned char>(b)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xc0 | c >> 6), byte(0x80 | (c & 63))};
  if (c < 0x10000) return {byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 63)), byte(0x80 | (c & 63))};
  return {byte(0xf0 | c >> 18), byte(0x80 | (c >> 12 & 63)), byte(0x80 | (c >> 6 & 63)),
          byte(0x80 | (c & 63))};
}

bool is_scalar(uint32_t c) { return c < 0x110000 && (c < 0xd800 || c > 0xdfff); }

// Which sequences of up to three bytes spell one scalar value: bit b2 b1 b0 of `three`, and so on.
struct Spellings {
  std::vector<bool> one = std::vector<bool>(1u << 8), two = std::vector<bool>(1u << 16),
                    three = std::vector<bool>(1u << 24);
  Spellings() {
    for (uint32_t c = 0; c < 0x10000; ++c) {
      if (!is_scalar(c)) continue;
      const std::string s = spell(c);
      const auto at = [&](size_t i) { return uint32_t{static_cast<unsigned char>(s[i])}; };
      if (s.size() == 1) one[at(0)] = true;
      if (s.size() == 2) two[at(0) << 8 | at(1)] = true;
      if (s.size() == 3) three[at(0) << 16 | at(1) << 8 | at(2)] = true;
    }
  }
};

}  // namespace

TEST_CASE("every scalar value is well-formed, alone and all together") {
  std::string all;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    const std::string s = spell(c);
    if (!is_scalar(c)) {
      if (invalid_utf8(s) != size_t{0}) FAIL("surrogate " << c);
      continue;
    }
    if (invalid_utf8(s)) FAIL("scalar value " << c);
    // Cut short, it is not: the fault is where it begins.
    for (size_t n = 1; n < s.size(); ++n) {
      if (invalid_utf8(std::string_view(s).substr(0, n)) != size_t{0}) FAIL("cut " << c);
      if (invalid_utf8(s.substr(0, n) + "a") != size_t{0}) FAIL("interrupted " << c);
    }
    all += s;
  }
  CHECK_FALSE(invalid_utf8(all));
  CHECK_FALSE(invalid_utf8(""));
}

TEST_CASE("every sequence of one to three bytes, against the table of what scalar values spell") {
  const Spellings spelled;
  size_t well_formed = 0;
  std::array<char, 3> text{};
  for (uint32_t b0 = 0; b0 < 256; ++b0) {
    text[0] = static_cast<char>(b0);
    if (invalid_utf8({text.data(), 1}).has_value() == spelled.one[b0]) FAIL("byte " << b0);
    for (uint32_t b1 = 0; b1 < 256; ++b1) {
      text[1] = static_cast<char>(b1);
      const uint32_t pair = b0 << 8 | b1;
      // Where the first fault of b0 b1 is, or 2.
      const size_t fault2 = spelled.two[pair]  ? 2u
                            : !spelled.one[b0] ? 0u
                            : spelled.one[b1]  ? 2u
                                               : 1u;
      if (invalid_utf8({text.data(), 2}).value_or(2) != fault2) FAIL("bytes " << pair);
      for (uint32_t b2 = 0; b2 < 256; ++b2) {
        text[2] = static_cast<char>(b2);
        size_t fault = 3;
        if (spelled.three[pair << 8 | b2]) {
          ++well_formed;
        } else if (spelled.two[pair]) {
          fault = spelled.one[b2] ? 3 : 2;
        } else if (!spelled.one[b0]) {
          fault = 0;
        } else if (!spelled.two[b1 << 8 | b2]) {
          fault = !spelled.one[b1] ? 1 : spelled.one[b2] ? 3 : 2;
        }
        if (invalid_utf8({text.data(), 3}).value_or(3) != fault) FAIL("bytes " << (pair << 8 | b2));
      }
    }
  }
  CHECK(well_formed == 0x10000 - 0x800 - 0x800);  // from U+0800 on, without surrogates
}

TEST_CASE("sequences of four bytes, over every lead and the bytes where a rule changes") {
  const std::vector<uint32_t> edges = {0x00, 0x41, 0x7f, 0x80, 0x81, 0x8f, 0x90, 0x91, 0x9f, 0xa0,
                                       0xbe, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xef, 0xf0, 0xff};
  for (uint32_t b0 = 0xf0; b0 < 0x100; ++b0) {
    for (uint32_t b1 = 0; b1 < 0x100; ++b1) {
      for (const uint32_t b2 : edges) {
        for (const uint32_t b3 : edges) {
          const std::string text = {static_cast<char>(b0), static_cast<char>(b1),
                                    static_cast<char>(b2), static_cast<char>(b3)};
          const uint32_t c = (b0 & 7) << 18 | (b1 & 63) << 12 | (b2 & 63) << 6 | (b3 & 63);
          const bool valid = b0 < 0xf8 && is_scalar(c) && spell(c) == text;
          if (valid == invalid_utf8(text).has_value())
            FAIL(b0 << " " << b1 << " " << b2 << " " << b3);
          if (!valid && invalid_utf8(text) != size_t{0}) FAIL("offset");
        }
      }
    }
  }
}

TEST_CASE("the offset of a fault, wherever it stands among words of ASCII and other text") {
  const std::vector<std::string> faults = {"\x80",         "\xc3",         "\xe2\x82",
                                           "\xf0\x9f\x98", "\xc0\x80",     "\xe0\x80\x80",
                                           "\xed\xa0\x80", "\xf4\x90\x80", "\xff"};
  const std::vector<std::string> fillers = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                            std::string(1, '\0')};
  for (const std::string &filler : fillers) {
    for (size_t before = 0; before < 25; ++before) {
      std::string text;
      for (size_t i = 0; i < before; ++i) text += filler;
      CHECK_FALSE(invalid_utf8(text));
      for (const std::string &fault : faults) {
        for (size_t after = 0; after < 10; ++after) {
          const std::string whole = text + fault + std::string(after, 'z') + "\xff";
          if (invalid_utf8(whole) != text.size()) FAIL(before << " " << after);
        }
      }
    }
  }
}

TEST_CASE("a cut never ends inside a character, and takes no more than it must") {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";  // 1 + 2 + 3 + 4 + 1 bytes
  const std::vector<size_t> expected = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11, 11};
  for (size_t most = 0; most < expected.size(); ++most) {
    CHECK(cut(text, most) == expected[most]);
    CHECK_FALSE(invalid_utf8(std::string_view(text).substr(0, cut(text, most))));
  }
  CHECK(cut("", 0) == 0);
  CHECK(cut("", 10) == 0);
  CHECK(cut("\x80\x80\x80", 2) == 0);  // no character to end at
}
