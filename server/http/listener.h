// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "http/address.h"
#include "http/service.h"
#include "http/session.h"

namespace cua_server::http {

// Accepts connections at one or more addresses and keeps account of them.
class Listener {
 public:
  // most_connections: at the same time; more are told 503 and closed.
  Listener(boost::asio::io_context &context, Service &service, size_t most_connections);
  ~Listener();

  // Binds and listens; accepts from start() on. The file of a Unix-domain socket that nobody
  // listens at any more is replaced. Throws boost::system::system_error.
  void listen(const Address &address);
  // The addresses in the order of listen(): HOST:PORT, an IPv6 host in brackets; unix:PATH.
  std::vector<std::string> addresses() const;
  // Starts accepting, until stop().
  void start();
  // Removes the files of the Unix-domain sockets, where they are not another's by now.
  void remove_files();
  // Accepts no more and closes the connections that wait for a request; the others finish theirs.
  // drained() is called once, when none is left.
  void stop(std::function<void()> drained);

 private:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;
  struct Door {
    Acceptor acceptor;
    std::string address;
    std::string path;  // of the socket's file, which is ours to remove; empty: none
    std::pair<dev_t, ino_t> file{};
  };

  boost::asio::awaitable<void> accept(Door &door);
  void serve(Socket socket);
  void turn_away(Socket &socket);

  boost::asio::io_context &context_;
  Service &service_;
  size_t most_connections_;
  std::list<Door> doors_;
  std::list<Session> sessions_;
  bool stopping_ = false;
  std::function<void()> drained_;
};

}  // namespace cua_server::http
