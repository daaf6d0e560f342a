// SPDX-License-Identifier: Apache-2.0
#include "decision/parse_json.h"

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "decision/python_json.h"
#include "refusal.h"

using namespace cua_server::decision;
using namespace std::string_literals;

namespace {

Refusal refusal(std::string_view text) {
  return refusal_of([&] { parse_json(text); });
}

std::string rewritten(std::string_view text) { return python_json(parse_json(text).root()); }

std::string repeated(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string nested(std::string_view begin, std::string_view inner, std::string_view end,
                   size_t levels) {
  return repeated(begin, levels) + std::string(inner) + repeated(end, levels);
}

}  // namespace

TEST_CASE("what is not JSON is refused, wherever it stands") {
  const std::string cases[] = {
      // numbers
      "NaN",
      "Infinity",
      "-Infinity",
      "01",
      "-01",
      "00",
      "+1",
      ".5",
      "-.5",
      "1.",
      "1.e5",
      "1e",
      "1e+",
      "1E-",
      "-",
      "--1",
      "0x10",
      "1_000",
      "1.2.3",
      "1e5.0",
      "1f",
      "\xd9\xa1",
      // strings
      "'x'",
      "\"\\x\"",
      "\"\\'\"",
      "\"\\u12\"",
      "\"\\u12g4\"",
      "\"\\U0041\"",
      "\"x",
      "\"\\",
      "\"\\\"",
      // a raw control character, and one only escaped by a backslash
      "\"\x01\"",
      "\"\n\"",
      "\"\t\"",
      "\"\x1f\"",
      "\"\\\n\"",
      "\"\0\""s,
      // half of a surrogate pair
      "\"\\ud800\"",
      "\"\\udbff\"",
      "\"\\udc00\"",
      "\"\\udfff\"",
      "\"\\ud800x\"",
      "\"\\ud800\\n\"",
      "\"\\ud800\\\\udc00\"",
      "\"\\ud800\\u0041\"",
      "\"\\ud800\\ud800\"",
      "\"\\udc00\\ud800\"",
      "\"\\uD83D\"",
      "{\"\\ud800\":1}",
      "{\"\\udc00\":1}",
      "{\"a\":{\"\\uDBFFb\":1}}",
      // not UTF-8: stray, overlong, surrogate, beyond U+10FFFF, cut
      "\"\x80\"",
      "\"\xff\"",
      "\"\xc0\x80\"",
      "\"\xe0\x80\x80\"",
      "\"\xed\xa0\x80\"",
      "\"\xed\xbf\xbf\"",
      "\"\xf0\x80\x80\x80\"",
      "\"\xf4\x90\x80\x80\"",
      "\"\xf8\x88\x80\x80\x80\"",
      "\"\xc3\"",
      "\"\xe2\x82\"",
      "\"\xf0\x9f\x98\"",
      "{\"\xff\":1}",
      "\"caf\xe9\"",
      // white space of other kinds
      "\x0c",
      "\x0b",
      "\xc2\xa0"
      "1",
      "1\xe2\x80\x83",
      "\xe2\x80\xa8"
      "1",
      // structure
      "[1,]",
      "[,1]",
      "[1 2]",
      "[",
      "]",
      "{",
      "}",
      "{\"a\"}",
      "{\"a\":}",
      "{\"a\":1,}",
      "{,}",
      "{a:1}",
      "{\"a\" 1}",
      "{1:2}",
      "{null:1}",
      "[1}",
      "{\"a\":1]",
      "tru",
      "True",
      "None",
      "nulll",
      "undefined",
      "// c\n1",
      "/* c */1",
      "1//",
      "#",
      ",",
      ":",
  };
  for (const std::string &value : cases) {
    CAPTURE(value);
    CHECK(refusal(value).status == 400);
    CHECK(refusal("[" + value + "]").status == 400);
    CHECK(refusal("{\"a\":[0," + value + ",0]}").status == 400);
    // The parser takes another path where many bytes follow.
    CHECK(refusal("[" + value + "," + repeated(" ", 64) + "0]").status == 400);
  }
}

TEST_CASE("a body is one value") {
  CHECK(refusal("").says("empty"));
  const std::string cases[] = {" ",      "\n\t\r ",   "{}{}",       "{} []", "{}x",
                               "1 2",    "{},",       "{}\0"s,      "\0{}"s, "\0"s,
                               "{}\x0c", "null null", "\"a\"\"b\"", "[]]",   "{}\xef\xbb\xbf"};
  for (const std::string &body : cases) {
    CAPTURE(body);
    CHECK(refusal(body).status == 400);
  }
  CHECK(refusal("{} x").says("byte 3"));
  CHECK(rewritten(" \t\r\n{} \t\r\n") == "{}");
}

TEST_CASE("other encodings are refused") {
  CHECK(refusal("\xef\xbb\xbf{}").says("byte order mark"));
  const std::string text = "{\"a\":1}";
  std::string little, big;
  for (const char c : text) {
    little += {c, '\0'};
    big += {'\0', c};
  }
  CHECK(refusal("\xff\xfe" + little).says("UTF-16"));
  CHECK(refusal("\xfe\xff" + big).says("UTF-16"));
  CHECK(refusal(little).status == 400);
  CHECK(refusal(big).status == 400);
  CHECK(refusal("{\"a\":\"\xd6\xd0\xce\xc4\"}").status == 400);  // GBK
}

TEST_CASE("a message says what, and where") {
  CHECK(refusal("{\"a\":1,}").says("byte 7"));
  CHECK(refusal("{'a':1}").says("byte 1"));
  CHECK(refusal("{\"a\":NaN}").says("byte 5"));
  CHECK(refusal("{\"a\":").says("ends too early"));
  CHECK(refusal("[\"\x01\"]").says("control character at byte 2"));
  CHECK(refusal("[\"\\ud800\"]").says("surrogate"));
  CHECK(refusal("[\"\\udc00\"]").says("surrogate"));
  CHECK(refusal("[\"\\ud800\\\\udc00\"]").says("surrogate"));
  CHECK(refusal("[1e400]").says("1e400"));
  CHECK(refusal(nested("[", "", "]", 128)).says("127"));
}

TEST_CASE("strings come out as the characters they spell") {
  const std::string cases[][2] = {
      {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
      {"\"\\u0000\"", "\0"s},
      {"\"\\u0041\\u00e9\\u4E2D\\ud83D\\uDe00\"", "A\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"},
      {"\"\\ud800\\udc00\\udbff\\udfff\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
      {"\"\\ufeff\\uffff\"", "\xef\xbb\xbf\xef\xbf\xbf"},
      {"\"\x7f\xc2\x80\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\"",
       "\x7f\xc2\x80\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"},
      {"\"\"", ""},
  };
  for (const auto &[text, expected] : cases) {
    CAPTURE(text);
    CHECK(parse_json(text).root().text() == expected);
    const std::string inside = "{" + text + ":[" + text + "]}";
    const JsonDocument document = parse_json(inside);
    const Json *const key = document.root().first();
    CHECK(key->text() == expected);
    CHECK(key->next()->first()->text() == expected);
  }
}

TEST_CASE("a string with escapes may be of any length") {
  // The parser hands these in parts of at most its buffer.
  for (size_t length = 0; length < 3000; length += length < 600 ? 1 : 37) {
    const std::string plain(length, 'x');
    const std::string text =
        "{\"\\n" + plain + "\":\"" + plain + "\\ud83d\\ude00\xc3\xa9" + plain + "\"}";
    const JsonDocument document = parse_json(text);
    const Json *const key = document.root().first();
    REQUIRE(key->text() == "\n" + plain);
    REQUIRE(key->next()->text() == plain + "\xf0\x9f\x98\x80\xc3\xa9" + plain);
  }
  const std::string escapes = "\"" + repeated("\\u00e9", 100000) + "\"";
  CHECK(parse_json(escapes).root().text() == repeated("\xc3\xa9", 100000));
}

TEST_CASE("a document may be moved") {
  // Strings in place and copied ones; with an exponent that makes the parser work on a copy.
  for (const std::string text : {"[\"\\n\",\"a\"]", "[\"\\n\",\"a\",1e-9999999999]"}) {
    std::vector<JsonDocument> documents;
    for (int i = 0; i < 100; ++i) documents.push_back(parse_json(text));
    for (const JsonDocument &document : documents) {
      CHECK(document.root().first()->text() == "\n");
      CHECK(document.root().first()->next()->text() == "a");
    }
  }
}

TEST_CASE("the same key twice in one object is refused and named") {
  const std::string twice[] = {
      "{\"key\":1,\"key\":1}",
      "{\"key\":1,\"other\":2,\"key\":3}",
      "{\"key\":1,\"k\\u0065y\":2}",
      "{\"\\u006bey\":1,\"\\u006Bey\":2}",
      "{\"a\":{\"b\":[0,{\"key\":{},\"key\":[]}]}}",
      "[[[{\"key\":null,\"key\":null}]]]",
      "{\"x\":{\"key\":1},\"y\":{\"key\":1,\"z\":{\"key\":1},\"key\":2}}",
  };
  for (const std::string &body : twice) {
    CAPTURE(body);
    CHECK(refusal(body).status == 400);
    CHECK(refusal(body).says("\"key\""));
  }
  CHECK(refusal("{\"\":1,\"\":2}").says("\"\""));
  CHECK(refusal("{\"\xc3\xa9\":1,\"\\u00e9\":2}").says("\"\xc3\xa9\""));
  CHECK(refusal("{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}").says("\"\xf0\x9f\x98\x80\""));
  CHECK(refusal("{\"a\\u0000\":1,\"a\\u0000\":2}").says("\"a\\u0000\""));
  // Same key in different objects; keys that are equal only after normalisation or folding.
  CHECK(rewritten("{\"a\":{\"a\":{\"a\":1}}}") == "{\"a\": {\"a\": {\"a\": 1}}}");
  CHECK(refusal("[{\"a\":1},{\"a\":1}]").status == 0);
  CHECK(refusal("{\"a\":1,\"A\":1,\"a \":1,\"a\\u0000\":1}").status == 0);
  CHECK(refusal("{\"\\u00e9\":1,\"e\\u0301\":1}").status == 0);
}

TEST_CASE("the same key twice is found among any number of keys") {
  for (size_t n : {2, 3, 7, 8, 9, 10, 64, 1000, 20000}) {
    std::string members;
    for (size_t i = 0; i < n; ++i) members += "\"k" + std::to_string(i) + "\":0,";
    CAPTURE(n);
    CHECK(parse_json("{" + members + "\"last\":0}").root().size() == n + 1);
    for (const size_t again : {size_t{0}, n / 2, n - 1}) {
      const std::string key = "k" + std::to_string(again);
      CHECK(refusal("{" + members + "\"" + key + "\":0}").says("\"" + key + "\""));
      CHECK(refusal("{\"" + key + "\":0," + members + "\"last\":0}").says("\"" + key + "\""));
    }
  }
}

TEST_CASE("keys of one hash are told apart") {
  // Inverts the last block of libstdc++'s hash, as somebody would who wants a hash table to be
  // slow.
  const uint64_t multiplier = 0xc6a4a7935bd1e995u;
  uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - multiplier * inverse;
  const auto mix = [&](uint64_t block) {
    block *= multiplier;
    return (block ^ block >> 47) * multiplier;
  };
  const auto unmix = [&](uint64_t block) {
    block *= inverse;
    return (block ^ block >> 47) * inverse;
  };
  const uint64_t seed = 0xc70f6907u ^ 16 * multiplier;
  const std::hash<std::string_view> hash;
  std::mt19937_64 random(7);
  std::vector<std::string> keys;
  while (keys.size() < 500) {
    uint64_t blocks[2] = {0x4141414141414141u, 0};
    for (int digit = 0; digit < 8; ++digit) blocks[0] += (random() % 26) << 8 * digit;
    blocks[1] = unmix(0x0123456789abcdefu ^ ((seed ^ mix(blocks[0])) * multiplier));
    std::string key(16, '\0');
    std::memcpy(key.data(), blocks, 16);
    const auto usable = [](char c) { return c > ' ' && c < '\x7f' && c != '"' && c != '\\'; };
    if (std::all_of(key.begin(), key.end(), usable)) keys.push_back(key);
  }
  if (hash(keys.front()) != hash(keys.back())) {
    WARN("another hash than libstdc++'s on a little-endian machine: not tested");
    return;
  }
  std::string members;
  for (const std::string &key : keys) members += "\"" + key + "\":0,";
  CHECK(parse_json("{" + members + "\"last\":0}").root().size() == keys.size() + 1);
  const std::string again = "\"" + keys[250] + "\"";
  CHECK(refusal("{" + members + again + ":0}").says(again));
}

TEST_CASE("127 levels pass, 128 do not") {
  const char *const kinds[][3] = {{"[", "", "]"}, {"{\"a\":", "1", "}"}, {"[{\"a\":", "[]", "}]"}};
  for (const auto &[begin, inner, end] : kinds) {
    const size_t each = std::strlen(begin) > 5 ? 2 : 1;
    const size_t inside = std::string(inner) == "[]" ? 1 : 0;
    const size_t most = (kMostLevels - inside) / each;
    CAPTURE(begin);
    CHECK(refusal(nested(begin, inner, end, most)).status == 0);
    CHECK(refusal(nested(begin, inner, end, most + 1)).status == 400);
    CHECK(refusal(repeated(begin, 100000)).status == 400);
    CHECK(refusal(nested(begin, inner, end, 100000)).status == 400);
  }
  // Levels count, not containers.
  CHECK(refusal("[" + repeated(nested("[", "", "]", 126) + ",", 100) + "0]").status == 0);
  CHECK(refusal("\"" + repeated("[", 1000) + "\"").status == 0);
  CHECK(nested("[", "", "]", 127) == rewritten(nested("[", "", "]", 127)));
}

TEST_CASE("integers keep their digits") {
  const std::string most(kMostIntegerDigits, '7');
  for (const std::string &digits :
       {"0"s, "7"s, "9223372036854775807"s, "9223372036854775808"s, "18446744073709551615"s,
        "18446744073709551616"s, "123456789012345678901234567890"s, most}) {
    CAPTURE(digits.size());
    // At the end of the text, before a bracket, and with much behind it.
    CHECK(rewritten(digits) == digits);
    CHECK(rewritten("[" + digits + "]") == "[" + digits + "]");
    CHECK(rewritten("[" + digits + repeated(" ", 64) + "]") == "[" + digits + "]");
    if (digits != "0") CHECK(rewritten("-" + digits) == "-" + digits);
  }
  CHECK(rewritten("-0") == "0");
  CHECK(rewritten("[-0 ]") == "[0]");
  CHECK(parse_json("-0").root().is(Json::Type::kInteger));
  for (const std::string sign : {"", "-"}) {
    CHECK(refusal(sign + most + "7").says("4300"));
    CHECK(refusal("{\"a\":[" + sign + most + "7]}").says("4301"));
  }
}

TEST_CASE("numbers with a fraction or an exponent are doubles, correctly rounded") {
  const std::string cases[][2] = {
      {"1.10", "1.1"},
      {"1e5", "100000.0"},
      {"1E5", "100000.0"},
      {"1e+5", "100000.0"},
      {"1e0005", "100000.0"},
      {"-0.0", "-0.0"},
      {"-0e0", "-0.0"},
      {"0e400", "0.0"},
      {"1e-400", "0.0"},
      {"-1e-400", "-0.0"},
      {"1e308", "1e+308"},
      {"5e-324", "5e-324"},
      {"2.4703282292062327e-324", "0.0"},     // under half of the smallest
      {"2.4703282292062328e-324", "5e-324"},  // over it
      {"1.7976931348623158e308", "1.7976931348623157e+308"},
      {"9007199254740993.0", "9007199254740992.0"},  // halfway, to even
      {"9007199254740993.00000000000000000001", "9007199254740994.0"},
      {"9007199254740995.0", "9007199254740996.0"},
      {"8.5e22", "8.5e+22"},
      {"1e23", "1e+23"},
      {"7.2057594037927933e16", "7.205759403792794e+16"},
      {"100000000000000000000.0", "1e+20"},
      {"123456789012345678901234567890.0", "1.2345678901234568e+29"},
      {std::string(5000, '9') + "e-5000", "1.0"},
      {"0." + std::string(5000, '0') + "1e5000", "0.1"},
      {"0." + std::string(70000, '0') + "15e70001", "1.5"},
      {"1" + std::string(70000, '0') + "e-70000", "1.0"},
      // Exponents beyond an int, and beyond 64 bits
      {"1e-2147483648", "0.0"},
      {"-1.5E-99999999999", "-0.0"},
      {"1e-99999999999999999999", "0.0"},
      {"0e99999999999999999999", "0.0"},
      {"-0.000E+99999999999999999999", "-0.0"},
      {"1e00000000000000000000002", "100.0"},
      {"1e-00000000000000000000002", "0.01"},
  };
  for (const auto &[text, expected] : cases) {
    CAPTURE(text.substr(0, 60));
    CHECK(rewritten(text) == expected);
    CHECK(rewritten("[" + text + "]") == "[" + expected + "]");
    CHECK(rewritten("{\"1e-99999999999\":" + text + repeated(" ", 64) + "}") ==
          "{\"1e-99999999999\": " + expected + "}");
  }
  const std::string too_large[] = {"1e400",
                                   "-1e400",
                                   "1e309",
                                   "1.7976931348623159e308",
                                   std::string(400, '9') + ".5",
                                   "1e2147483648",
                                   "1e99999999999999999999",
                                   "-0.001e99999999999999999999",
                                   "0." + std::string(70000, '0') + "1e800000"};
  for (const std::string &text : too_large) {
    CAPTURE(text.substr(0, 60));
    CHECK(refusal(text).says("range"));
    CHECK(refusal("{\"a\":{\"b\":" + text + "}}").says("range"));
    CHECK(refusal("[" + text + repeated(" ", 64) + "]").says("range"));
  }
}

TEST_CASE("a long exponent changes nothing else of the text") {
  const std::string text =
      "{\"e12345678901\":\"1e99999999999\\\"1e-99999999999\",\"\\u0065\":[1e-99999999999,"
      "12345678901,"
      "\"\\\\\",2e-99999999999,true,1E+0000000000000003,\"E-12345678901\"]}";
  CHECK(
      rewritten(text) ==
      "{\"e12345678901\": \"1e99999999999\\\"1e-99999999999\", \"e\": [0.0, 12345678901, \"\\\\\", "
      "0.0, true, 1000.0, \"E-12345678901\"]}");
  CHECK(rewritten("[1e-99999999999,0." + std::string(70000, '0') + "15e70001]") == "[0.0, 1.5]");
  CHECK(refusal("[1e-99999999999,1e+]").says("byte 19"));
  CHECK(refusal("[1e-99999999999,01]").says("byte 17"));
  CHECK(refusal("[1e-99999999999,1e99999999999x]").status == 400);
  CHECK(refusal("[1e-99999999999").status == 400);
  CHECK(refusal("[1e-99999999999,\"").status == 400);
  CHECK(refusal("[1e-99999999999,\"\\").status == 400);
}

TEST_CASE("members are found by their key") {
  const std::string text = "{\"a\":{\"b\":1,\"c\":[{},[2]]},\"\\u0062\":true,\"\":null}";
  const JsonDocument document = parse_json(text);
  const Json &root = document.root();
  CHECK(root.find("a")->is(Json::Type::kObject));
  CHECK(root.find("a")->find("c")->size() == 2);
  CHECK(root.find("b")->boolean());
  CHECK(root.find("")->is(Json::Type::kNull));
  CHECK(root.find("c") == nullptr);
  CHECK(root.find("b")->find("a") == nullptr);
}

TEST_CASE("bodies of 4 MiB take no more than linear time, whatever they hold") {
  constexpr size_t kBytes = 4 << 20;
  const auto filled = [](std::string_view begin, const std::function<std::string(size_t)> &part,
                         std::string_view end) {
    std::string text(begin);
    for (size_t i = 0;; ++i) {
      const std::string next = part(i);
      if (text.size() + next.size() + end.size() > kBytes) break;
      text += next;
    }
    return text + std::string(end);
  };
  const auto number = [](size_t i) { return std::to_string(i); };
  const std::string bodies[] = {
      filled(
          "[", [](size_t) { return "1,"; }, "1]"),
      filled(
          "[", [](size_t) { return "[],"; }, "1]"),
      filled(
          "[", [](size_t) { return "\"\","; }, "1]"),
      filled(
          "[", [](size_t) { return "\"\\n\","; }, "1]"),
      filled(
          "[", [](size_t) { return "1e-99999999999,"; }, "1]"),
      filled(
          "[", [](size_t) { return nested("[", "", "]", 126) + ","; }, "1]"),
      filled(
          "\"", [](size_t) { return "x"; }, "\""),
      filled(
          "\"", [](size_t) { return "\\u00e9"; }, "\""),
      filled(
          "0.", [](size_t) { return "1"; }, "e0"),
      filled(
          "0.", [](size_t) { return "0"; }, "1e4000000"),
      filled(
          "{", [&](size_t i) { return "\"" + number(i) + "\":1,"; }, "\"\":1}"),
      filled(
          "{", [&](size_t i) { return "\"" + repeated("x", 90) + number(i) + "\":1,"; }, "\"\":1}"),
      filled(
          "{", [&](size_t i) { return "\"" + number(i) + repeated("x", 90) + "\":1,"; }, "\"\":1}"),
      filled(
          "{", [&](size_t i) { return "\"\\u0078" + number(i) + "\":1,"; }, "\"\":1}"),
      filled(
          "[", [](size_t) { return "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1},"; },
          "1]"),
  };
  for (const std::string &body : bodies) {
    CAPTURE(body.substr(0, 60));
    CHECK(refusal(body).status == 0);
  }
  const std::string twice = filled(
      "{", [&](size_t i) { return "\"" + number(i) + "\":1,"; }, "\"0\":1}");
  CHECK(refusal(twice).says("\"0\""));
  CHECK(refusal(std::string(kBytes, '[')).status == 400);
  CHECK(refusal(std::string(kBytes, '7')).says("digits"));
}
