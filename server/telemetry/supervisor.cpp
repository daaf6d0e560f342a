// SPDX-License-Identifier: Apache-2.0
#include "telemetry/supervisor.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace cua_server::telemetry {

Supervisor::Supervisor() {
  const char *const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  path_ = path;
  if (path_.size() >= sizeof(sockaddr_un::sun_path)) return;
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const char *const microseconds = std::getenv("WATCHDOG_USEC");
  const char *const process = std::getenv("WATCHDOG_PID");
  if (microseconds == nullptr) return;
  if (process != nullptr && std::atol(process) != ::getpid()) return;
  interval_ = std::chrono::milliseconds(std::max(0LL, std::atoll(microseconds)) / 2000);
}

Supervisor::~Supervisor() {
  if (socket_ >= 0) ::close(socket_);
}

void Supervisor::tell(std::string_view state) const {
  if (socket_ < 0) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  if (path_[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  (void)::sendto(socket_, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr *>(&address), length);
}

}  // namespace cua_server::telemetry
