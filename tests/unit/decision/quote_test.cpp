// SPDX-License-Identifier: Apache-2.0
#include "decision/quote.h"

#include <string>

#include "catch.h"

using namespace cua_server::decision;
using namespace std::string_literals;

TEST_CASE("a client's text in a message is short, and cut where a character ends") {
  CHECK(quote_short("pick") == "\"pick\"");
  CHECK(quote_short("") == "\"\"");
  CHECK(cut_short(std::string(80, 'x')) == std::string(80, 'x'));
  CHECK(cut_short(std::string(81, 'x')) == std::string(80, 'x') + "...");
  for (const std::string character : {"\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80"}) {
    for (size_t before = 0; before < 8; ++before) {
      std::string text(before, 'x');
      for (int i = 0; i < 1000; ++i) text += character;
      const std::string cut = cut_short(text);
      REQUIRE(cut.ends_with("..."));
      CHECK((cut.size() - 3 - before) % character.size() == 0);
      CHECK(cut.size() < 90);
    }
  }
}

TEST_CASE("a message is one line without a NUL") {
  CHECK(quote_short("a\0b\n\r\x1b"s) == "\"a\\u0000b\\n\\r\\u001b\"");
  CHECK(cut_short(std::string(4096, '\0')).size() < 90);
}

TEST_CASE("ill-formed bytes are replaced, the rest is kept") {
  const std::string bad = "\xef\xbf\xbd";
  const std::string cases[][2] = {
      {"plain \x7f \xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80",
       "plain \x7f \xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80"},
      {"", ""},
      {"\x80", bad},
      {"a\xff"
       "b",
       "a" + bad + "b"},
      {"\xc3", bad},
      {"\xc3(", bad + "("},
      {"\xc0\x80", bad + bad},
      {"\xed\xa0\x80", bad + bad + bad},
      {"\xf4\x90\x80\x80", bad + bad + bad + bad},
      {"\xe2\x82", bad + bad},
      {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"},
      {"a\0b"s, "a\0b"s},
  };
  for (const auto &[text, expected] : cases) CHECK(make_utf8(text) == expected);
}
