// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <string>
#include <string_view>

namespace cua_server::telemetry {

// systemd's notification protocol (sd_notify(3)): datagrams to the socket that NOTIFY_SOCKET names.
// Does nothing where there is none.
class Supervisor {
 public:
  Supervisor();
  ~Supervisor();
  Supervisor(const Supervisor &) = delete;
  Supervisor &operator=(const Supervisor &) = delete;

  void tell(std::string_view state) const;  // "READY=1", "STOPPING=1", "WATCHDOG=1"
  // How often WATCHDOG=1 is due: half of WATCHDOG_USEC, where it is meant for this process; else 0.
  std::chrono::milliseconds watchdog_interval() const { return interval_; }

 private:
  int socket_ = -1;
  std::string path_;
  std::chrono::milliseconds interval_{};
};

}  // namespace cua_server::telemetry
