// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "tokenizer/utf8.h"

using cua::tokenizer::append_utf8;

namespace {

std::string nfc(std::string_view text) {
  std::string storage;
  return std::string(cua::tokenizer::nfc(text, storage));
}

std::string utf8(const std::u32string &characters) {
  std::string text;
  for (const char32_t c : characters) append_utf8(c, text);
  return text;
}

std::string utf8proc_nfc(const std::string &text) {
  utf8proc_uint8_t *result = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t *>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  REQUIRE(length >= 0);
  std::string copy(reinterpret_cast<char *>(result), static_cast<size_t>(length));
  std::free(result);
  return copy;
}

}  // namespace

TEST_CASE("normal form C of known cases") {
  const std::vector<std::pair<std::u32string, std::u32string>> cases = {
      {U"", U""},
      {U"plain", U"plain"},
      {U"e\u0301", U"\u00e9"},
      {U"\u00e9", U"\u00e9"},
      {U"xe\u0301y", U"x\u00e9y"},
      {U"\u0301e", U"\u0301e"},
      {U"e\u0301\u0323", U"\u1eb9\u0301"},  // reordered, then composed
      {U"\u00e9\u0323", U"\u1eb9\u0301"},   // a stable character opened again
      {U"a\u0315\u0300\u05ae\u0062", U"\u00e0\u05ae\u0315b"},
      {U"q\u0300\u0316", U"q\u0316\u0300"},
      {U"\u212b\u2126\u212a", U"\u00c5\u03a9K"},  // singletons
      {U"\u0958", U"\u0915\u093c"},               // composition exclusion
      {U"\u0344", U"\u0308\u0301"},
      {U"\u1100\u1161\u11a8", U"\uac01"},  // Hangul
      {U"\uac00\u11a8", U"\uac01"},
      {U"\uac00\u11a7", U"\uac00\u11a7"},
      {U"\u0bc6\u0bbe", U"\u0bca"},  // a second part of combining class 0
      {U"\u09c7\u09be\u09c7", U"\u09cb\u09c7"},
      {U"\U0001d15f", U"\U0001d158\U0001d165"},
      {U"\uf900\U0002f800", U"\u8c48\u4e3d"},
      {U"\ufb1d", U"\u05d9\u05b4"},
      {std::u32string(U"\0e\u0301", 3), std::u32string(U"\0\u00e9", 2)},
  };
  for (const auto &[text, expected] : cases) {
    INFO(utf8(text));
    CHECK(nfc(utf8(text)) == utf8(expected));
    CHECK(nfc(utf8(expected)) == utf8(expected));
  }
}

TEST_CASE("what is later than Unicode 9.0 stays, and keeps its neighbours apart") {
  // U+07FD, U+1DF6 (marks) and U+11935 U+11930 (a pair that composes) are younger.
  for (const std::u32string text :
       {U"q\u0301\u07fd", U"q\u07fd\u0334", U"\u07fd\u0334", U"q\u0345\u1df6\u0334",
        U"\U00011935\U00011930", U"\U00011938", U"\U00011938\u0301", U"\U000105d2\u0307"}) {
    CHECK(nfc(utf8(text)) == utf8(text));
  }
  CHECK(nfc(utf8(U"e\u0301\u07fde\u0301")) == utf8(U"\u00e9\u07fd\u00e9"));
}

TEST_CASE("every code point, and random texts of those that matter, agree with utf8proc") {
  // Left of U+0334 and right of U+0345, a combining class would show.
  std::vector<char32_t> changing;
  std::vector<char32_t> later;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string text = utf8({U'e', 0x345, c, 0x334, U'x', c, 0x301});
    const std::string expected = utf8proc_nfc(text);
    if (nfc(text) != expected) {
      later.push_back(c);
    } else if (expected != text && changing.size() < 100000) {
      changing.push_back(c);
    }
  }
  // The marks that utf8proc's Unicode has and 9.0 had not; one of 12.0 among them.
  CHECK(later.size() > 50);
  CHECK(later.size() < 500);
  CHECK(std::find(later.begin(), later.end(), 0x1e130) != later.end());

  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::u32string text;
    for (size_t length = 1 + random() % 12; text.size() < length;) {
      text += random() % 4 ? changing[random() % changing.size()]
                           : U"ae \u00e9\u4e00\uac00"[random() % 6];
    }
    const std::string bytes = utf8(text);
    if (nfc(bytes) != utf8proc_nfc(bytes)) FAIL("text " << bytes);
  }
}

TEST_CASE("marks of one class keep their order in a run of any length") {
  for (const size_t length : {3, 15, 16, 17, 40, 1000}) {
    std::u32string text = U"q";
    std::u32string low;
    std::u32string high;
    for (size_t i = 0; i < length; ++i) {
      low += U"\u0316\u0317\u0323\u0324"[i % 4];
      high += U"\u0301\u0300\u0302\u030a\u0308"[i % 5];
      text += high.back();
      text += low.back();
    }
    CHECK(nfc(utf8(text)) == utf8(U"q" + low + high));
  }
}

TEST_CASE("long runs of marks in the wrong order take linear time") {
  std::string text = "q";
  std::string sorted = "q";
  const size_t pairs = 500000;  // quadratic would be 10^12 steps
  for (size_t i = 0; i < pairs; ++i) text += utf8(U"\u0301\u0316");
  for (size_t i = 0; i < pairs; ++i) sorted += utf8(U"\u0316");
  for (size_t i = 0; i < pairs; ++i) sorted += utf8(U"\u0301");
  CHECK(nfc(text) == sorted);
}
