// SPDX-License-Identifier: Apache-2.0
//
// Reads JSON files of a model folder with errors that name file and field.
#pragma once
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace cua::checkpoint {

// The object that a JSON file holds. Throws Error BAD_MODEL.
boost::json::object read_json_object(const std::filesystem::path &path);
boost::json::object parse_json_object(std::string_view text, const std::string &file);

// Fields of an object of `file`. Absent and null are the same.
class Fields {
 public:
  Fields(const boost::json::object &object, std::string file)
      : object_(object), file_(std::move(file)) {}

  bool has(std::string_view name) const;
  // A whole number of 1 to `most`; required.
  uint32_t count(std::string_view name, uint32_t most) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  const boost::json::object *object(std::string_view name) const;  // nullptr: absent
  const boost::json::array *array(std::string_view name) const;    // nullptr: absent
  [[noreturn]] void fail(std::string_view name, const std::string &what) const;
  [[noreturn]] void unsupported(std::string_view name, const std::string &what) const;

 private:
  const boost::json::value *find(std::string_view name) const;
  const boost::json::object &object_;
  std::string file_;
};

}  // namespace cua::checkpoint
