// SPDX-License-Identifier: Apache-2.0
#include "decision/json.h"

namespace cua_server::decision {

const Json *Json::find(std::string_view key) const {
  if (!is(Type::kObject)) return nullptr;
  const Json *name = first();
  for (size_t i = 0; i < size(); ++i) {
    const Json *const value = name->next();
    if (name->text() == key) return value;
    name = value->next();
  }
  return nullptr;
}

const char *Json::type_name() const {
  switch (type()) {
    case Type::kNull:
      return "null";
    case Type::kBoolean:
      return "a boolean";
    case Type::kInteger:
    case Type::kReal:
      return "a number";
    case Type::kString:
      return "a string";
    case Type::kArray:
      return "an array";
    case Type::kObject:
      return "an object";
  }
  return "";
}

}  // namespace cua_server::decision
