// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace cua_server::http {

// What answers a request, before HTTP's own headers.
struct Reply {
  unsigned status = 200;
  std::string body;
  std::string allow;  // of a 405: the methods that the path takes
  const char *type = "application/json";
  std::string headers;  // more of them, each "\r\nName: value"
  bool drop = false;    // nobody is there to be answered: close
  bool counts = false;  // a request that its head alone has refused: for metrics and log
};

Reply json_reply(unsigned status, std::string body);
// {"detail":"..."}
Reply error_reply(unsigned status, std::string_view detail);

}  // namespace cua_server::http
