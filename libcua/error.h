// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

#include "cua.h"

namespace cua {

// Thrown inside the library; the ABI boundary turns it into its code and message.
// The message names the thing at fault and the remedy, and is UTF-8.
class Error : public std::runtime_error {
 public:
  Error(int32_t code, const std::string &message) : std::runtime_error(message), code_(code) {}
  int32_t code() const noexcept { return code_; }

 private:
  int32_t code_;  // CUA_*
};

}  // namespace cua
