// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/split_pattern.h"

#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "error.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/utf8.h"

using cua::Error;
using cua::tokenizer::append_utf8;
using cua::tokenizer::pcre2_pattern;
using cua::tokenizer::PreTokenizer;

namespace {

std::vector<std::string> cut(const std::string &pattern, const std::string &text) {
  const PreTokenizer pre_tokenizer(pattern, "test");
  PreTokenizer::Cutter cutter(pre_tokenizer, text);
  std::vector<std::string> pieces;
  std::string_view piece;
  while (cutter.next(piece)) pieces.emplace_back(piece);
  return pieces;
}

int32_t refusal(const std::string &pattern) {
  try {
    PreTokenizer pre_tokenizer(pattern, "the regex");
  } catch (const Error &error) {
    CHECK(std::string_view(error.what()).starts_with("the regex "));
    return error.code();
  }
  return CUA_OK;
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST_CASE("what both engines read alike passes unchanged") {
  for (const std::string pattern :
       {R"(a|b)", R"(\p{L}+)", R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)",
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d))", R"(a(?!b)(?=c)(?:d)(e))", R"(a??b*?c+?d?+e*+f++)",
        R"(a{2}b{2,}c{2,3})", R"([a-z\-\]x-])", R"([-a])", R"(\.\\\[\/)",
        "\xC3\xA9+[\xC3\xA0-\xC3\xBC]", R"(\P{Lu})", R"([\P{L}])"}) {
    CHECK(pcre2_pattern(pattern) == pattern);
    CHECK(refusal(pattern) == CUA_OK);
  }
}

TEST_CASE("white space is the 25 characters of White_Space, in and out of classes") {
  const std::set<char32_t> white = {0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,
                                    0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                    0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                    0x2029, 0x202F, 0x205F, 0x3000};
  const PreTokenizer out(R"(\s)", "out");
  const PreTokenizer in(R"([\s])", "in");
  const PreTokenizer outside(R"([^\s])", "outside");
  const PreTokenizer negated(R"(\S)", "negated");
  // Whether the middle of three characters is cut out, where the outer ones do not match.
  const auto matches = [](const PreTokenizer &pre_tokenizer, char32_t c, const std::string &outer) {
    std::string text = outer;
    append_utf8(c, text);
    PreTokenizer::Cutter cutter(pre_tokenizer, text += outer);
    std::string_view piece;
    size_t pieces = 0;
    while (cutter.next(piece)) ++pieces;
    return pieces == 3;
  };
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const bool is_white = white.contains(c);
    if (matches(out, c, "x") != is_white || matches(in, c, "x") != is_white ||
        matches(outside, c, "\n") == is_white || matches(negated, c, "\n") == is_white) {
      FAIL("code point " << static_cast<uint32_t>(c));
    }
  }
}

TEST_CASE("what they may read differently is refused") {
  for (const std::string pattern :
       {"^a",           "a$",        "a.b",     R"(\d)",   R"(\w)",      R"(\b)",      R"(\h)",
        R"(\R)",        R"(\X)",     R"(\A)",   R"(\1)",   R"(\x41)",    R"(\u0041)",  R"(\Qa\E)",
        R"(\p{Han})",   R"(\p{^L})", R"(\pL)",  R"(\p{L)", R"([\S])",    R"([\d])",    "[a[b]]",
        "[[:alpha:]]",  "[a&&b]",    "[]a]",    "[a",      "[]",         R"([\s-a])",  R"([a-\s])",
        R"([\p{L}-z])", "(?i)a",     "(?m:a)",  "(?<n>a)", "(?<=a)b",    "(?<!a)b",    "(?>a)",
        "(?#a)b",       "(*SKIP)a",  "(?i:a)",  "(?i:ss)", "(?i:'s|st)", "(?i:[a-z])", "(?i:'s",
        "(?i:)",        "a**",       "a{2}{3}", "a{2}+",   "a{2}?",      "a{,2}",      "a{b}",
        "a{2",          "*a",        "+",       "?",       "}",          "]",          "a|*",
        "(a",           "a)",        "\\"}) {
    INFO(pattern);
    CHECK(refusal(pattern) == CUA_UNSUPPORTED);
  }
}

TEST_CASE("a regex that does not compile, and one that matches nothing at all") {
  CHECK(refusal("[z-a]") == CUA_BAD_MODEL);
  CHECK(refusal("a{3,2}") == CUA_BAD_MODEL);
  CHECK(refusal("a*") == CUA_UNSUPPORTED);
  CHECK(refusal("") == CUA_UNSUPPORTED);
  CHECK(refusal("a|") == CUA_UNSUPPORTED);
}

TEST_CASE("a text is cut into matches and what lies between") {
  CHECK(cut("b+", "") == Pieces{});
  CHECK(cut("b+", "abba") == Pieces{"a", "bb", "a"});
  CHECK(cut("b+", "bb") == Pieces{"bb"});
  CHECK(cut("b+", "xyz") == Pieces{"xyz"});
  CHECK(cut("b", "bbxb") == Pieces{"b", "b", "x", "b"});
  CHECK(cut(R"(\s+(?!\S)|\s+)", "a   b ") == Pieces{"a", "  ", " ", "b", " "});
  CHECK(cut("(?i:'s|'t)", "'S'\xC5\xBF'T") == Pieces{"'S", "'\xC5\xBF", "'T"});
  CHECK(cut("a", std::string("\0a\0", 3)) ==
        Pieces{std::string(1, '\0'), "a", std::string(1, '\0')});
}

TEST_CASE("a regex that needs more than the stack of compiled code still matches") {
  // Every round of the group saves a place to come back to.
  const std::string text(300000, 'a');
  CHECK(cut("(a|b)+", text) == Pieces{text});
}
