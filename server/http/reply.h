// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace cua_server::http {

// What answers a request, before HTTP's own headers. The body is JSON.
struct Reply {
  unsigned status = 200;
  std::string body;
  std::string allow;  // of a 405: the methods that the path takes
};

}  // namespace cua_server::http
