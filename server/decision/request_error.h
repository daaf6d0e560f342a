// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>
#include <string>

namespace cua_server::decision {

// A request that is refused: the HTTP status and the text of its "detail".
class RequestError : public std::runtime_error {
 public:
  RequestError(unsigned status, const std::string &detail)
      : std::runtime_error(detail), status_(status) {}
  unsigned status() const noexcept { return status_; }

 private:
  unsigned status_;
};

}  // namespace cua_server::decision
