// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/asio/cancellation_signal.hpp>
#include <functional>
#include <string>

namespace cua_server::http {

// Who waits for a decision. Lives on the thread of the sockets, as long as anyone holds it.
struct Waiter {
  bool gone = false;       // the client has closed its end
  bool timed_out = false;  // it has waited too long
  boost::asio::cancellation_signal stop_watching;
  std::string id;               // of the request, for the log
  std::function<void()> leave;  // drops what waits of its request; empty: nothing does yet

  void has_gone() {
    gone = true;
    if (leave) leave();
  }
};

}  // namespace cua_server::http
