// SPDX-License-Identifier: Apache-2.0
#include "http/listener.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <string>

#include "telemetry/log.h"

namespace cua_server::http {

namespace asio = boost::asio;
using asio::ip::tcp;

Listener::Listener(asio::io_context &context, const std::string &host, uint16_t port,
                   Service &service, size_t most_connections)
    : context_(context),
      acceptor_(context),
      service_(service),
      most_connections_(most_connections) {
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, std::to_string(port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol());
  acceptor_.set_option(asio::socket_base::reuse_address(true));
  acceptor_.bind(endpoint);
  acceptor_.listen(asio::socket_base::max_listen_connections);
}

std::string Listener::address() const {
  const tcp::endpoint endpoint = acceptor_.local_endpoint();
  const std::string host = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + host + "]" : host) + ":" +
         std::to_string(endpoint.port());
}

void Listener::start() { asio::co_spawn(context_, accept(), asio::detached); }

void Listener::stop(std::function<void()> drained) {
  stopping_ = true;
  drained_ = std::move(drained);
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  for (Session &session : sessions_) session.finish();
  if (sessions_.empty()) drained_();
}

asio::awaitable<void> Listener::accept() {
  asio::steady_timer pause(context_);
  while (!stopping_) {
    auto [error, socket] = co_await acceptor_.async_accept(asio::as_tuple(asio::use_awaitable));
    if (stopping_) break;
    if (error) {
      // Out of descriptors, or the client has gone already: neither ends the listener. The pause
      // keeps it from spinning until a connection closes.
      telemetry::log(telemetry::Level::warning,
                     "accepting a connection failed: " + error.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
      continue;
    }
    if (sessions_.size() >= most_connections_) {
      // A fresh connection takes so little at once; whoever does not read it loses nothing.
      static const std::string full = [] {
        const std::string body = error_reply(503, "too many connections; come again").body;
        return "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
               "Content-Length: " +
               std::to_string(body.size()) +
               "\r\nRetry-After: 1\r\nretry-after-ms: 1000\r\nConnection: close\r\n\r\n" + body;
      }();
      boost::system::error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(full), ignored);
      socket.shutdown(tcp::socket::shutdown_send, ignored);
      continue;
    }
    try {
      serve(std::move(socket));
    } catch (const std::exception &failure) {  // out of memory: this connection is lost, not all
      telemetry::log(telemetry::Level::error,
                     std::string("a connection was dropped: ") + failure.what());
    }
  }
}

void Listener::serve(tcp::socket socket) {
  const auto session = sessions_.emplace(sessions_.end(), std::move(socket), service_);
  asio::co_spawn(context_, session->run(), [this, session](std::exception_ptr failure) {
    if (failure) {
      try {
        std::rethrow_exception(failure);
      } catch (const std::exception &error) {
        telemetry::log(telemetry::Level::error,
                       std::string("a connection was dropped: ") + error.what());
      }
    }
    sessions_.erase(session);
    if (stopping_ && sessions_.empty()) drained_();
  });
}

}  // namespace cua_server::http
