// SPDX-License-Identifier: Apache-2.0
#include "decision/parse_json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string>
#include <unordered_set>

#include "decision/quote.h"
#include "decision/request_error.h"

namespace cua_server::decision {
namespace {

namespace json = boost::json;

// The value nearest to a number's text. Boost.JSON's own conversion is not correctly rounded.
double nearest_double(const std::string &text) {
  double value = 0;
  const char *const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && at == end) return value;
  return std::strtod(text.c_str(), nullptr);  // out of range: infinity, or zero and below normal
}

// Builds the tree from the parser's events. Values wait on a stack until their container ends.
class TreeBuilder {
 public:
  static constexpr std::size_t max_object_size = SIZE_MAX;
  static constexpr std::size_t max_array_size = SIZE_MAX;
  static constexpr std::size_t max_key_size = SIZE_MAX;
  static constexpr std::size_t max_string_size = SIZE_MAX;

  std::string fault;  // what stopped the parser, where it was not the grammar
  Json take() { return std::move(values_.front()); }

  bool on_document_begin(json::error_code &) { return true; }
  bool on_document_end(json::error_code &) { return true; }
  bool on_object_begin(json::error_code &) { return true; }
  bool on_array_begin(json::error_code &) { return true; }

  bool on_object_end(std::size_t n, json::error_code &ec) {
    Json::Object members;
    members.reserve(n);
    const auto first_key = keys_.end() - static_cast<std::ptrdiff_t>(n);
    const auto first_value = values_.end() - static_cast<std::ptrdiff_t>(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      members.push_back({std::move(first_key[at]), std::move(first_value[at])});
    }
    keys_.erase(first_key, keys_.end());
    values_.erase(first_value, values_.end());
    if (const std::string *const key = repeated(members)) {
      return fail(ec, "the key " + quote_short(*key) + " appears twice in one object");
    }
    values_.emplace_back(std::move(members));
    return true;
  }
  bool on_array_end(std::size_t n, json::error_code &) {
    const auto first = values_.end() - static_cast<std::ptrdiff_t>(n);
    Json::Array items(std::make_move_iterator(first), std::make_move_iterator(values_.end()));
    values_.erase(first, values_.end());
    values_.emplace_back(std::move(items));
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code &) {
    return part_of(part);
  }
  bool on_key(json::string_view part, std::size_t, json::error_code &) {
    part_of(part);
    keys_.push_back(std::exchange(text_, {}));
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code &) {
    return part_of(part);
  }
  bool on_string(json::string_view part, std::size_t, json::error_code &) {
    part_of(part);
    values_.emplace_back(std::exchange(text_, {}));
    return true;
  }
  bool on_number_part(json::string_view part, json::error_code &) { return part_of(part); }
  bool on_int64(int64_t, json::string_view part, json::error_code &ec) { return number(part, ec); }
  bool on_uint64(uint64_t, json::string_view part, json::error_code &ec) {
    return number(part, ec);
  }
  bool on_double(double, json::string_view part, json::error_code &ec) { return number(part, ec); }
  bool on_bool(bool value, json::error_code &) {
    values_.emplace_back(value);
    return true;
  }
  bool on_null(json::error_code &) {
    values_.emplace_back();
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code &) { return true; }
  bool on_comment(json::string_view, json::error_code &) { return true; }

 private:
  bool part_of(json::string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }

  bool number(json::string_view part, json::error_code &ec) {
    part_of(part);
    std::string spelling = std::exchange(text_, {});
    if (spelling.find_first_of(".eE") != spelling.npos) {
      const double value = nearest_double(spelling);
      if (!std::isfinite(value)) {
        return fail(ec, "the number " + cut_short(spelling) + " is out of the range of a double");
      }
      values_.emplace_back(value);
      return true;
    }
    const std::size_t digits = spelling.size() - (spelling.front() == '-' ? 1 : 0);
    if (digits > kMostIntegerDigits) {
      return fail(ec, "an integer of " + std::to_string(digits) + " digits; at most " +
                          std::to_string(kMostIntegerDigits) + " are allowed");
    }
    if (spelling == "-0") spelling = "0";
    values_.emplace_back(Json::Integer{std::move(spelling)});
    return true;
  }

  // A key that an earlier member has too.
  static const std::string *repeated(const Json::Object &members) {
    constexpr std::size_t kFew = 8;
    if (members.size() <= kFew) {
      for (std::size_t i = 1; i < members.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          if (members[i].key == members[j].key) return &members[i].key;
        }
      }
      return nullptr;
    }
    std::unordered_set<std::string_view> seen;
    seen.reserve(members.size());
    for (const Json::Member &member : members) {
      if (!seen.insert(member.key).second) return &member.key;
    }
    return nullptr;
  }

  bool fail(json::error_code &ec, std::string what) {
    fault = std::move(what);
    ec = json::error::syntax;
    return false;
  }

  std::vector<Json> values_;
  std::vector<std::string> keys_;
  std::string text_;
};

}  // namespace

Json parse_json(std::string_view text) {
  if (text.empty()) throw RequestError(400, "the body is empty; send a JSON object");
  json::parse_options options;
  options.max_depth = kMostLevels;
  json::basic_parser<TreeBuilder> parser(options);
  json::error_code error;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), error);
  const auto fail = [](const std::string &what) {
    throw RequestError(400, "the body is not usable JSON: " + what);
  };
  if (!parser.handler().fault.empty()) fail(parser.handler().fault);
  if (error == json::error::too_deep) {
    fail("it is nested more than " + std::to_string(kMostLevels) + " levels deep");
  }
  if (error) fail(error.message() + " at byte " + std::to_string(used));
  const auto rest =
      std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(used), text.end(),
                       [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; });
  if (rest != text.end()) {
    fail("something follows the value at byte " + std::to_string(rest - text.begin()));
  }
  return parser.handler().take();
}

}  // namespace cua_server::decision
