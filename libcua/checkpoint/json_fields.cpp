// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_fields.h"

#include <boost/json.hpp>
#include <cmath>

#include "checkpoint/mapped_file.h"
#include "error.h"

namespace cua::checkpoint {

namespace json = boost::json;

namespace {
constexpr size_t kLargestJson = size_t{64} << 20;  // bytes; an index of 100,000 tensors has 10 MB
}

json::object parse_json_object(std::string_view text, const std::string &file) {
  json::error_code error;
  json::value value = json::parse(text, error);
  if (error) throw Error(CUA_BAD_MODEL, file + ": not valid JSON: " + error.message());
  if (!value.is_object()) throw Error(CUA_BAD_MODEL, file + ": not a JSON object");
  return std::move(value.as_object());
}

json::object read_json_object(const std::filesystem::path &path) {
  return parse_json_object(read_text(path, kLargestJson), path.string());
}

const json::value *Fields::find(std::string_view name) const {
  const json::value *const value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool Fields::has(std::string_view name) const { return find(name) != nullptr; }

void Fields::fail(std::string_view name, const std::string &what) const {
  throw Error(CUA_BAD_MODEL, file_ + ": \"" + std::string(name) + "\" " + what);
}

void Fields::unsupported(std::string_view name, const std::string &what) const {
  throw Error(CUA_UNSUPPORTED, file_ + ": \"" + std::string(name) + "\" " + what);
}

std::optional<double> Fields::number(std::string_view name) const {
  const json::value *const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail(name, "is not a number");
  const double number = value->to_number<double>();
  if (!std::isfinite(number)) fail(name, "is not a finite number");
  return number;
}

uint32_t Fields::count(std::string_view name, uint32_t most) const {
  const std::optional<double> value = number(name);
  if (!value) fail(name, "is missing");
  if (*value < 1 || *value > most || *value != std::floor(*value)) {
    fail(name, "is not a whole number of 1 to " + std::to_string(most));
  }
  return static_cast<uint32_t>(*value);
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const json::value *const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) fail(name, "is neither true nor false");
  return value->as_bool();
}

std::optional<std::string> Fields::text(std::string_view name) const {
  const json::value *const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(name, "is not a string");
  return std::string(value->as_string());
}

const json::object *Fields::object(std::string_view name) const {
  const json::value *const value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) fail(name, "is not an object");
  return &value->as_object();
}

const json::array *Fields::array(std::string_view name) const {
  const json::value *const value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) fail(name, "is not an array");
  return &value->as_array();
}

}  // namespace cua::checkpoint
