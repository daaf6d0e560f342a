// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cua_server::decision {

// A JSON value as the request spelled it: members in order, integers with all their digits.
class Json {
 public:
  struct Integer {
    std::string digits;  // canonical: no leading zero, "0" for "-0"
  };
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  explicit Json(bool value) : value_(value) {}
  explicit Json(double value) : value_(value) {}
  explicit Json(Integer value) : value_(std::move(value)) {}
  explicit Json(std::string value) : value_(std::move(value)) {}
  explicit Json(Array value) : value_(std::move(value)) {}
  explicit Json(Object value) : value_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // nullptr where the value is of another type.
  const bool *boolean() const { return std::get_if<bool>(&value_); }
  const double *real() const { return std::get_if<double>(&value_); }
  const Integer *integer() const { return std::get_if<Integer>(&value_); }
  const std::string *string() const { return std::get_if<std::string>(&value_); }
  const Array *array() const { return std::get_if<Array>(&value_); }
  const Object *object() const { return std::get_if<Object>(&value_); }
  std::string *string() { return std::get_if<std::string>(&value_); }

  // The member of an object; nullptr where there is none or this is no object.
  const Json *find(std::string_view key) const;
  const char *type_name() const;  // "an object", "null", ...

 private:
  std::variant<std::monostate, bool, double, Integer, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

}  // namespace cua_server::decision
