// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <list>
#include <string>

#include "http/service.h"
#include "http/session.h"

namespace cua_server::http {

// Accepts connections and keeps account of them.
class Listener {
 public:
  // Binds and listens. Port 0 picks a free one. Throws boost::system::system_error.
  // most_connections: at the same time; more are told 503 and closed.
  Listener(boost::asio::io_context &context, const std::string &host, uint16_t port,
           Service &service, size_t most_connections);

  std::string address() const;  // HOST:PORT, an IPv6 host in brackets
  // Starts accepting, until stop().
  void start();
  // Accepts no more and closes the connections that wait for a request; the others finish theirs.
  // drained() is called once, when none is left.
  void stop(std::function<void()> drained);

 private:
  boost::asio::awaitable<void> accept();
  void serve(boost::asio::ip::tcp::socket socket);

  boost::asio::io_context &context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  Service &service_;
  size_t most_connections_;
  std::list<Session> sessions_;
  bool stopping_ = false;
  std::function<void()> drained_;
};

}  // namespace cua_server::http
