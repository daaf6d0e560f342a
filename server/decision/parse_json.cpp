// SPDX-License-Identifier: Apache-2.0
#include "decision/parse_json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decision/quote.h"
#include "decision/request_error.h"

namespace cua_server::decision {

namespace json = boost::json;

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// The value nearest to a number's text. Boost.JSON's own conversion is not correctly rounded.
double nearest_double(std::string_view text) {
  double value = 0;
  const char *const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && at == end) return value;
  return std::strtod(std::string(text).c_str(), nullptr);  // infinity, or zero and below normal
}

// A key of an object that an earlier member has too; nullptr where there is none.
const Json *repeated_key(const Json &object) {
  constexpr size_t kFew = 8;
  if (object.size() <= kFew) {
    const Json *key = object.first();
    for (size_t i = 0; i < object.size(); ++i, key = key->next()->next()) {
      const Json *earlier = object.first();
      for (size_t j = 0; j < i; ++j, earlier = earlier->next()->next()) {
        if (earlier->text() == key->text()) return key;
      }
    }
    return nullptr;
  }
  // Sorted, not put in a hash table: nobody can choose keys that make a sort slow.
  struct Key {
    size_t hash;
    const Json *json;
  };
  std::vector<Key> keys(object.size());
  const Json *key = object.first();
  for (Key &slot : keys) {
    slot = {std::hash<std::string_view>()(key->text()), key};
    key = key->next()->next();
  }
  std::sort(keys.begin(), keys.end(), [](const Key &a, const Key &b) {
    return a.hash != b.hash ? a.hash < b.hash : a.json->text() < b.json->text();
  });
  const auto found = std::adjacent_find(keys.begin(), keys.end(), [](const Key &a, const Key &b) {
    return a.hash == b.hash && a.json->text() == b.json->text();
  });
  return found == keys.end() ? nullptr : found->json;
}

}  // namespace

// Fills the document from the parser's events.
class JsonBuilder {
 public:
  static constexpr std::size_t max_object_size = SIZE_MAX;
  static constexpr std::size_t max_array_size = SIZE_MAX;
  static constexpr std::size_t max_key_size = SIZE_MAX;
  static constexpr std::size_t max_string_size = SIZE_MAX;

  // Strings will point into `body`.
  explicit JsonBuilder(std::string_view body) : body_(body) {}

  const std::string &fault() const {
    return fault_;
  }  // what stopped the parser, if not the grammar
  JsonDocument take(std::vector<char> body) {
    document_.body_ = std::move(body);
    return std::move(document_);
  }

  bool on_document_begin(json::error_code &) { return true; }
  bool on_document_end(json::error_code &) { return true; }
  bool on_object_begin(json::error_code &) { return begin(Json::Type::kObject); }
  bool on_array_begin(json::error_code &) { return begin(Json::Type::kArray); }
  bool on_object_end(std::size_t n, json::error_code &ec) {
    if (const Json *const key = repeated_key(end(n))) {
      return fail(ec, "the key " + quote_short(key->text()) + " appears twice in one object");
    }
    return true;
  }
  bool on_array_end(std::size_t n, json::error_code &) {
    end(n);
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code &) { return copy(part); }
  bool on_key(json::string_view part, std::size_t, json::error_code &) { return string(part); }
  bool on_string_part(json::string_view part, std::size_t, json::error_code &) {
    return copy(part);
  }
  bool on_string(json::string_view part, std::size_t, json::error_code &) { return string(part); }
  // Numbers come whole, as the body is one buffer; this is of one that ends too early.
  bool on_number_part(json::string_view, json::error_code &) { return true; }
  bool on_int64(int64_t, json::string_view text, json::error_code &ec) { return number(text, ec); }
  bool on_uint64(uint64_t, json::string_view text, json::error_code &ec) {
    return number(text, ec);
  }
  bool on_double(double, json::string_view text, json::error_code &ec) { return number(text, ec); }
  bool on_bool(bool value, json::error_code &) {
    add(Json::Type::kBoolean).is_true_ = value;
    return true;
  }
  bool on_null(json::error_code &) {
    add(Json::Type::kNull);
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code &) { return true; }
  bool on_comment(json::string_view, json::error_code &) { return true; }

 private:
  Json &add(Json::Type type) {
    Json &value = document_.values_.emplace_back();
    value.type_ = type;
    return value;
  }
  void add(Json::Type type, std::string_view text) {
    Json &value = add(type);
    value.text_ = text.data();
    value.size_ = text.size();
  }

  bool begin(Json::Type type) {
    open_.push_back(document_.values_.size());
    add(type);
    return true;
  }
  const Json &end(size_t n) {
    Json &value = document_.values_[open_.back()];
    value.size_ = n;
    value.inside_ = document_.values_.size() - open_.back() - 1;
    open_.pop_back();
    return value;
  }

  // A part of a string with escapes. All copies together are shorter than the body, so that the
  // room for them never moves.
  bool copy(json::string_view part) {
    std::vector<char> &copied = document_.copied_;
    if (copied.capacity() == 0) copied.reserve(body_.size());
    copied.insert(copied.end(), part.begin(), part.end());
    return true;
  }
  // The last part of a string, which is all of it where the text had no escapes.
  bool string(json::string_view part) {
    std::vector<char> &copied = document_.copied_;
    const std::less_equal<> not_after;
    if (copied.size() == copied_before_ && not_after(body_.data(), part.data()) &&
        not_after(part.data() + part.size(), body_.data() + body_.size())) {
      add(Json::Type::kString, {part.data(), part.size()});
      return true;
    }
    copy(part);
    add(Json::Type::kString, {copied.data() + copied_before_, copied.size() - copied_before_});
    copied_before_ = copied.size();
    return true;
  }

  bool number(json::string_view text, json::error_code &ec) {
    const std::string_view spelling(text.data(), text.size());
    if (spelling.find_first_of(".eE") != spelling.npos) {
      const double value = nearest_double(spelling);
      if (!std::isfinite(value)) {
        return fail(ec, "the number " + cut_short(spelling) + " is out of the range of a double");
      }
      add(Json::Type::kReal).real_ = value;
      return true;
    }
    const std::size_t digits = spelling.size() - (spelling.front() == '-' ? 1 : 0);
    if (digits > kMostIntegerDigits) {
      return fail(ec, "an integer of " + std::to_string(digits) + " digits; at most " +
                          std::to_string(kMostIntegerDigits) + " are allowed");
    }
    add(Json::Type::kInteger, spelling == "-0" ? spelling.substr(1) : spelling);
    return true;
  }

  bool fail(json::error_code &ec, std::string what) {
    fault_ = std::move(what);
    ec = json::error::syntax;
    return false;
  }

  const std::string_view body_;
  std::string fault_;
  JsonDocument document_;
  std::vector<size_t> open_;  // indices of the containers around the next value
  size_t copied_before_ = 0;  // bytes of document_.copied_ that are of earlier strings
};

namespace {

// Whether the text before `at` ends with \\ud800 to \\udbff, the first half of a pair.
bool follows_half_a_pair(std::string_view text, size_t at) {
  if (at < 6 || at > text.size()) return false;
  const std::string_view escape = text.substr(at - 6, 6);
  return escape.starts_with("\\u") && (escape[2] == 'd' || escape[2] == 'D') &&
         std::string_view("89abAB").find(escape[3]) != std::string_view::npos;
}

// What is wrong with the byte where the parser stopped.
std::string describe(json::error_code error, std::string_view text, size_t at) {
  const std::string place = " at byte " + std::to_string(at);
  if (text.starts_with("\xef\xbb\xbf")) return "it begins with a byte order mark; leave that out";
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return "it is UTF-16; send UTF-8";
  }
  if (error == json::error::too_deep) {
    return "it is nested more than " + std::to_string(kMostLevels) + " levels deep";
  }
  if (at >= text.size()) return "it ends too early," + place;
  if (error == json::error::illegal_leading_surrogate ||
      error == json::error::illegal_trailing_surrogate || follows_half_a_pair(text, at) ||
      follows_half_a_pair(text, at - 1)) {
    return "half of a surrogate pair before byte " + std::to_string(at);
  }
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x20 && !is_blank(text[at])) return "a raw control character" + place;
  if (error == json::error::syntax) return "a syntax error" + place;
  return error.message() + place;
}

// The same text with every exponent of more than 9 digits replaced by a smaller one of as many. No
// value changes: what such an exponent belongs to is zero or infinite, whatever digits precede it
// in a text of this size. Boost.JSON refuses exponents beyond an int.
std::vector<char> shorten_exponents(std::string_view text) {
  constexpr std::ptrdiff_t kKept = 9;
  std::vector<char> out(text.begin(), text.end());
  const auto end = out.end();
  for (auto at = out.begin(); at < end; ++at) {
    if (*at == '"') {  // skip the string
      for (++at; at < end && *at != '"'; ++at) {
        if (*at == '\\') ++at;
      }
    } else if (*at == 'e' || *at == 'E') {
      auto first = at + 1;
      if (first < end && (*first == '-' || *first == '+')) ++first;
      const auto last = std::find_if_not(first, end, is_digit);
      const auto significant = std::find_if(first, last, [](char c) { return c != '0'; });
      if (last - significant > kKept) {
        std::fill(first, last - kKept, '0');
        std::fill(last - kKept, last, '9');
      }
      at = last - 1;
    }
  }
  return out;
}

[[noreturn]] void refuse(const std::string &what) {
  throw RequestError(400, "the body is not usable JSON: " + what);
}

}  // namespace

JsonDocument parse_json(std::string_view text) {
  if (text.empty()) throw RequestError(400, "the body is empty; send a JSON object");
  json::parse_options options;
  options.max_depth = kMostLevels;
  json::error_code error;
  std::vector<char> shortened;
  std::optional<json::basic_parser<JsonBuilder>> parser;
  parser.emplace(options, text);
  std::size_t used = parser->write_some(false, text.data(), text.size(), error);
  if (error == json::error::exponent_overflow) {
    shortened = shorten_exponents(text);
    text = {shortened.data(), shortened.size()};
    error = {};
    parser.emplace(options, text);
    used = parser->write_some(false, text.data(), text.size(), error);
  }
  if (!parser->handler().fault().empty()) refuse(parser->handler().fault());
  if (error) refuse(describe(error, text, used));
  const auto rest =
      std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(used), text.end(), is_blank);
  if (rest != text.end()) {
    refuse("something follows the value at byte " + std::to_string(rest - text.begin()));
  }
  return parser->handler().take(std::move(shortened));
}

}  // namespace cua_server::decision
