// SPDX-License-Identifier: Apache-2.0
#include "decision/python_json.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "catch.h"
#include "decision/parse_json.h"

using namespace cua_server::decision;
using namespace std::string_literals;

namespace {

std::string escaped(std::string_view text) {
  std::string out;
  append_escaped(out, text);
  return out;
}

std::string repr(double value) {
  std::string out;
  append_repr(out, value);
  return out;
}

std::string rewritten(std::string_view text) { return python_json(parse_json(text).root()); }

}  // namespace

TEST_CASE("only quotes, backslashes and what is below 0x20 are escaped") {
  CHECK(escaped("\"\\/") == "\\\"\\\\/");
  CHECK(escaped("\b\t\n\f\r") == "\\b\\t\\n\\f\\r");
  for (int byte = 0; byte < 256; ++byte) {
    CAPTURE(byte);
    const std::string text(1, static_cast<char>(byte));
    const std::string out = escaped(text);
    if (byte >= 0x20 && byte != '"' && byte != '\\') {
      CHECK(out == text);
    } else if (byte < 0x20 && std::strchr("\b\t\n\f\r", byte) == nullptr) {
      char expected[8];
      std::snprintf(expected, sizeof expected, "\\u%04x", static_cast<unsigned>(byte));
      CHECK(out == expected);
    } else if (byte != 0) {
      CHECK(out.size() == 2);
    }
  }
  CHECK(escaped("\0"s) == "\\u0000");
  CHECK(escaped("\x1f\x7f\xc2\x80\xe2\x80\xa8\xf0\x9f\x98\x80") ==
        "\\u001f\x7f\xc2\x80\xe2\x80\xa8\xf0\x9f\x98\x80");
}

TEST_CASE("a float is Python's repr") {
  const struct {
    double value;
    const char *text;
  } cases[] = {
      {1.10, "1.1"},
      {1e5, "100000.0"},
      {1e15, "1000000000000000.0"},
      {9999999999999998.0, "9999999999999998.0"},
      {1e16, "1e+16"},
      {1.5e16, "1.5e+16"},
      {0.0001, "0.0001"},
      {0.00012345, "0.00012345"},
      {1e-5, "1e-05"},
      {1.5e-5, "1.5e-05"},
      {1e-10, "1e-10"},
      {1e100, "1e+100"},
      {1e-100, "1e-100"},
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {-1.5, "-1.5"},
      {-1e-7, "-1e-07"},
      {5e-324, "5e-324"},
      {9007199254740993.0, "9007199254740992.0"},
      {100000000000000000000.0, "1e+20"},
      {123456789.125, "123456789.125"},
      {0.1, "0.1"},
      {0.30000000000000004, "0.30000000000000004"},
      {std::numeric_limits<double>::max(), "1.7976931348623157e+308"},
      {std::numeric_limits<double>::min(), "2.2250738585072014e-308"},
      {static_cast<double>(0.26894143f), "0.2689414322376251"},
      {static_cast<double>(0.7310586f), "0.7310585975646973"},
  };
  for (const auto &[value, text] : cases) CHECK(repr(value) == text);
}

TEST_CASE("a float's text gives the float back") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const std::string text = repr(value);
    CAPTURE(text);
    const double back = std::strtod(text.c_str(), nullptr);
    REQUIRE(std::memcmp(&back, &value, sizeof value) == 0);
    REQUIRE(text.find_first_of(".e") != text.npos);
  }
}

TEST_CASE("values are written as json.dumps does") {
  const char *const cases[][2] = {
      {"{}", "{}"},
      {"[]", "[]"},
      {" [ ] ", "[]"},
      {"{\"b\":1,\"a\":[true,false,null]}", "{\"b\": 1, \"a\": [true, false, null]}"},
      {"{\"10\":1,\"9\":2,\"\":3}", "{\"10\": 1, \"9\": 2, \"\": 3}"},
      {"[[[]],{\"a\":{}}]", "[[[]], {\"a\": {}}]"},
      {"[1.10,1e5,1E16,-0.0,0e0]", "[1.1, 100000.0, 1e+16, -0.0, 0.0]"},
      {"[-0,0,-1]", "[0, 0, -1]"},
      {"[123456789012345678901234567890]", "[123456789012345678901234567890]"},
      {"[\"\\/\\u0041\\u001F\\ud83d\\ude00\\u2028\"]",
       "[\"/A\\u001f\xf0\x9f\x98\x80\xe2\x80\xa8\"]"},
      {"{\"\\\"\\n\":\"\\\\\"}", "{\"\\\"\\n\": \"\\\\\"}"},
      {"\"x\"", "\"x\""},
      {"3", "3"},
      {"null", "null"},
  };
  for (const auto &[text, expected] : cases) CHECK(rewritten(text) == expected);
}
