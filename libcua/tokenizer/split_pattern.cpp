// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/split_pattern.h"

#include <algorithm>
#include <array>

#include "error.h"

namespace cua::tokenizer {
namespace {

// The inside of a class of the characters with White_Space=yes, which is what Oniguruma's \s takes.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// General categories, whose names both engines share.
constexpr std::array<std::string_view, 37> kCategories = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

// What may stand in (?i:...). Oniguruma folds multi-character sequences in its own way (it takes
// neither a sharp s for (?i:ss) nor a long s in (?i:st)), so only alternatives that were compared
// over all of Unicode are taken: there both engines accept the ASCII cases, and ' with U+017F.
constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t",  "'re", "'ve",
                                                           "'m", "'ll", "'d"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alphanumeric(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape(false);
        quantifier();
      } else if (c == '[') {
        character_class();
        quantifier();
      } else if (c == '(') {
        open_group();
      } else if (c == ')') {
        if (depth_-- == 0) refuse("an unmatched parenthesis");
        copy(1);
        quantifier();
      } else if (c == '|') {
        copy(1);
      } else if (std::string_view("^$.*+?{}]").find(c) != std::string_view::npos) {
        refuse(std::string("\"") + c + "\" in this place");
      } else {
        copy_character();
        quantifier();
      }
    }
    if (depth_ != 0) refuse("an unclosed parenthesis");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string &what) const {
    throw Error(CUA_UNSUPPORTED, what + " at byte " + std::to_string(at_));
  }
  bool ahead(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  char peek(size_t distance) const {
    return at_ + distance < in_.size() ? in_[at_ + distance] : '\0';
  }
  void copy(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }
  void copy_character() {
    do {
      copy(1);
    } while (at_ < in_.size() && (static_cast<uint8_t>(in_[at_]) & 0xC0) == 0x80);
  }

  void escape(bool in_class) {
    const char c = peek(1);
    if (c == 's') {
      out_ += in_class ? std::string(kWhiteSpace) : '[' + std::string(kWhiteSpace) + ']';
      at_ += 2;
    } else if (c == 'S' && !in_class) {
      out_ += "[^" + std::string(kWhiteSpace) + ']';
      at_ += 2;
    } else if (c == 'p' || c == 'P') {
      const size_t close = in_.find('}', at_);
      if (peek(2) != '{' || close == std::string_view::npos) refuse("a property without {name}");
      const std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
      if (std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end()) {
        refuse("the property \"" + std::string(name) + "\"");
      }
      copy(close + 1 - at_);
    } else if (c == 'r' || c == 'n' || c == 't' || (c > ' ' && c < 0x7F && !is_alphanumeric(c))) {
      copy(2);
    } else {
      refuse("an escape other than \\s \\S \\p \\P \\r \\n \\t and punctuation");
    }
  }

  void character_class() {
    copy(1);
    if (ahead("^")) copy(1);
    const size_t first = at_;
    bool after_set = false;  // the last item was \s or \p, which cannot begin a range
    for (; !ahead("]") || at_ == first; after_set = ahead_set_) {
      if (at_ >= in_.size()) refuse("an unclosed class");
      if (ahead("[") || ahead("]")) refuse("a bracket inside a class");
      if (ahead("&&")) refuse("a class intersection");
      ahead_set_ = false;
      if (ahead("-") && at_ != first && peek(1) != ']') {
        const char next = peek(2);
        if (after_set ||
            (peek(1) == '\\' && (next == 's' || next == 'S' || next == 'p' || next == 'P'))) {
          refuse("a range with a set as its end");
        }
      }
      if (ahead("\\")) {
        ahead_set_ = peek(1) == 's' || peek(1) == 'p' || peek(1) == 'P';
        escape(true);
      } else {
        copy_character();
      }
    }
    copy(1);
  }

  void open_group() {
    if (ahead("(?i:")) {
      case_insensitive_group();
      return;
    }
    ++depth_;
    if (ahead("(?:") || ahead("(?!") || ahead("(?=")) {
      copy(3);
    } else if (peek(1) == '?' || peek(1) == '*') {
      refuse("a group other than (?:, (?=, (?! and (?i:");
    } else {
      copy(1);
    }
  }

  void case_insensitive_group() {
    const size_t close = in_.find(')', at_);
    if (close == std::string_view::npos) refuse("an unclosed parenthesis");
    for (size_t begin = at_ + 4; begin <= close;) {
      const size_t end = std::min(in_.find('|', begin), close);
      const std::string_view text = in_.substr(begin, end - begin);
      if (std::find(kContractions.begin(), kContractions.end(), text) == kContractions.end()) {
        refuse("(?i:...) with something else than English contractions");
      }
      begin = end + 1;
    }
    copy(close + 1 - at_);
    quantifier();
  }

  // At most one quantifier, with at most one lazy or possessive mark.
  void quantifier() {
    if (ahead("?") || ahead("*") || ahead("+")) {
      copy(1);
      if (ahead("?") || ahead("+")) copy(1);
    } else if (ahead("{")) {
      size_t end = at_ + 1;
      while (end < in_.size() && is_digit(in_[end])) ++end;
      const bool has_minimum = end > at_ + 1;
      if (end < in_.size() && in_[end] == ',') ++end;
      while (end < in_.size() && is_digit(in_[end])) ++end;
      if (!has_minimum || end >= in_.size() || in_[end] != '}') refuse("this use of {");
      copy(end + 1 - at_);
    }
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t depth_ = 0;
  bool ahead_set_ = false;
};

}  // namespace

std::string pcre2_pattern(std::string_view oniguruma) { return Translator(oniguruma).run(); }

}  // namespace cua::tokenizer
