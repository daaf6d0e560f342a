// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>

#include "http/service.h"

namespace cua_server::http {

// A connection over TCP or a Unix-domain socket.
using Socket = boost::asio::generic::stream_protocol::socket;

// One connection: requests are answered one after the other, in order.
class Session {
 public:
  Session(Socket socket, Service &service);

  // Until the connection ends.
  boost::asio::awaitable<void> run();
  // No request after the one being worked on; at once where none has come to its end.
  void finish();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // Reads and answers one request. False: the connection is to be closed.
  boost::asio::awaitable<bool> exchange();
  boost::asio::awaitable<boost::system::error_code> read_header(Parser &parser);
  boost::asio::awaitable<boost::system::error_code> read_body(Parser &parser);
  boost::asio::awaitable<boost::system::error_code> read_some(size_t most);
  template <class Head>
  boost::asio::awaitable<bool> send(const Head &head, const Reply &reply, bool keep_alive);
  boost::asio::awaitable<bool> refuse_unread(const Parser &parser, boost::system::error_code error);
  boost::asio::awaitable<bool> refuse(const Parser &parser, unsigned status,
                                      std::string_view detail);
  boost::asio::awaitable<void> linger();
  void watch(const std::shared_ptr<Waiter> &waiter);

  boost::beast::basic_stream<boost::asio::generic::stream_protocol> stream_;
  boost::beast::flat_buffer buffer_;
  std::string text_;  // of the answer that is being sent
  Service &service_;
  bool accepted_ = false;  // a request has come to its end, and is not answered yet
  bool finishing_ = false;
};

}  // namespace cua_server::http
