// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>

namespace cua_server::http {

// Where to listen: a TCP port of a host, or a Unix-domain socket.
struct Address {
  std::string host;
  uint16_t port = 0;  // 0: a free one
  std::string path;   // of the socket; empty: TCP
};

}  // namespace cua_server::http
