// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

#include "decision/request_error.h"

// The status of a refusal and its text; 0 where nothing was refused.
struct Refusal {
  unsigned status = 0;
  std::string detail;

  bool says(std::string_view words) const { return detail.find(words) != std::string::npos; }
};

template <typename Function>
Refusal refusal_of(const Function &function) {
  try {
    function();
  } catch (const cua_server::decision::RequestError &error) {
    return {error.status(), error.what()};
  }
  return {};
}
