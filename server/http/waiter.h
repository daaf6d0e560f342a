// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <boost/asio/cancellation_signal.hpp>
#include <functional>
#include <string>

namespace cua_server::http {

// Who waits for a decision. Lives on the thread of the sockets, but for the flags, which are read
// on any.
struct Waiter {
  std::atomic<bool> gone{false};       // the client has closed its end
  std::atomic<bool> timed_out{false};  // it has waited too long
  bool watched = false;                // its socket is
  boost::asio::cancellation_signal stop_watching;
  std::string id;               // of the request, for the log
  std::string coding;           // the Content-Encoding of its body; empty: none
  std::function<void()> leave;  // drops what waits of its request; empty: nothing does

  void has_gone() {
    gone = true;
    if (leave) leave();
  }
  void has_waited_too_long() {
    timed_out = true;
    if (leave) leave();
  }
};

}  // namespace cua_server::http
