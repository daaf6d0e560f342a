// SPDX-License-Identifier: Apache-2.0
#include "decision/json.h"

namespace cua_server::decision {

const Json *Json::find(std::string_view key) const {
  const Object *const members = object();
  if (members == nullptr) return nullptr;
  for (const Member &member : *members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const char *Json::type_name() const {
  static constexpr const char *kNames[] = {"null",     "a boolean", "a number", "a number",
                                           "a string", "an array",  "an object"};
  return kNames[value_.index()];
}

}  // namespace cua_server::decision
