// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace cua_server::http {

// What answers a request, before HTTP's own headers. The body is JSON.
struct Reply {
  unsigned status = 200;
  std::string body;
  std::string allow;  // of a 405: the methods that the path takes
  std::string type = "application/json";
  std::string headers;  // more of them, each "\r\nName: value"
  bool drop = false;    // nobody is there to be answered: close
};

}  // namespace cua_server::http
