// SPDX-License-Identifier: Apache-2.0
// The least that a Beast server can do: read a request, answer a constant. The yardstick of the
// worker's own overhead. usage: minimal_server, prints "listening on 127.0.0.1:PORT".
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

namespace {

asio::awaitable<void> session(tcp::socket socket) {
  socket.set_option(tcp::no_delay(true));
  beast::tcp_stream stream(std::move(socket));
  beast::flat_buffer buffer;
  try {
    for (;;) {
      http::request<http::string_body> request;
      co_await http::async_read(stream, buffer, request, asio::use_awaitable);
      http::response<http::string_body> response(http::status::ok, request.version());
      response.set(http::field::content_type, "application/json");
      response.keep_alive(request.keep_alive());
      response.body() = "{\"constant\":true}";
      response.prepare_payload();
      co_await http::async_write(stream, response, asio::use_awaitable);
      if (!response.keep_alive()) break;
    }
  } catch (const boost::system::system_error &) {  // the client has gone
  }
}

asio::awaitable<void> listen(tcp::acceptor &acceptor) {
  for (;;) {
    asio::co_spawn(acceptor.get_executor(),
                   session(co_await acceptor.async_accept(asio::use_awaitable)), asio::detached);
  }
}

}  // namespace

int main() {
  asio::io_context context(1);
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  asio::co_spawn(context, listen(acceptor), asio::detached);
  asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code &, int) { context.stop(); });
  std::printf("listening on 127.0.0.1:%u\n", unsigned{acceptor.local_endpoint().port()});
  std::fflush(stdout);
  context.run();
}
