// SPDX-License-Identifier: Apache-2.0
#include "http/listener.h"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "http/message.h"
#include "telemetry/log.h"

namespace cua_server::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using Local = asio::local::stream_protocol;

namespace {

// Removes what a worker left behind that was killed; never what is not a socket, or is in use.
void remove_stale(asio::io_context &context, const std::string &path) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0 || !S_ISSOCK(about.st_mode)) return;
  Local::socket probe(context);
  boost::system::error_code error;
  probe.open(Local(), error);
  probe.non_blocking(true, error);  // a listener without room would make it wait
  probe.connect(Local::endpoint(path), error);
  if (error == asio::error::connection_refused) ::unlink(path.c_str());
}

// Which file it is, whatever its name: of none, nothing that a file could be.
std::pair<dev_t, ino_t> identity(const std::string &path) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0) return {};
  return {about.st_dev, about.st_ino};
}

}  // namespace

Listener::Listener(asio::io_context &context, Service &service, size_t most_connections)
    : context_(context), service_(service), most_connections_(most_connections) {}

Listener::~Listener() { remove_files(); }

void Listener::remove_files() {
  for (Door &door : doors_) {
    const std::string path = std::exchange(door.path, {});
    if (!path.empty() && identity(path) == door.file) ::unlink(path.c_str());
  }
}

void Listener::listen(const Address &address) {
  Acceptor acceptor(context_);
  const auto bind = [&](const auto &endpoint) {
    acceptor.open(endpoint.protocol());
    acceptor.set_option(asio::socket_base::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen(asio::socket_base::max_listen_connections);
  };
  if (!address.path.empty()) {
    remove_stale(context_, address.path);
    bind(Local::endpoint(address.path));
    doors_.push_back(
        {std::move(acceptor), "unix:" + address.path, address.path, identity(address.path)});
    return;
  }
  tcp::resolver resolver(context_);
  const auto found = resolver.resolve(address.host, std::to_string(address.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service);
  bind(found.begin()->endpoint());
  tcp::endpoint bound;
  const auto local = acceptor.local_endpoint();
  bound.resize(local.size());
  std::memcpy(bound.data(), local.data(), local.size());
  const std::string host = bound.address().to_string();
  doors_.push_back(
      {std::move(acceptor),
       (bound.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(bound.port()),
       {},
       {}});
}

std::vector<std::string> Listener::addresses() const {
  std::vector<std::string> all;
  for (const Door &door : doors_) all.push_back(door.address);
  return all;
}

void Listener::start() {
  for (Door &door : doors_) asio::co_spawn(context_, accept(door), asio::detached);
}

void Listener::stop(std::function<void()> drained) {
  stopping_ = true;
  drained_ = std::move(drained);
  remove_files();  // while they are held open, so that no other file can be taken for them
  for (Door &door : doors_) {
    boost::system::error_code ignored;
    door.acceptor.close(ignored);
  }
  for (Session &session : sessions_) session.finish();
  if (sessions_.empty()) drained_();
}

asio::awaitable<void> Listener::accept(Door &door) {
  asio::steady_timer pause(context_);
  while (!stopping_) {
    auto [error, socket] = co_await door.acceptor.async_accept(asio::as_tuple(asio::use_awaitable));
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
      turn_away(socket);
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

void Listener::turn_away(Socket &socket) {
  Reply full = error_reply(503, "too many connections; come again");
  full.headers = retry_headers(std::chrono::seconds(1));
  std::string text;
  make_message(text, 11, false, full, false);
  // A fresh connection takes so little at once; whoever does not read it loses nothing.
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(Socket::shutdown_send, ignored);
}

void Listener::serve(Socket socket) {
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
