// SPDX-License-Identifier: Apache-2.0
#include "http/session.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "decision/request.h"
#include "http/message.h"

namespace cua_server::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using std::chrono::seconds;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);

constexpr uint32_t kMostHeaderBytes = 16 * 1024;
// What is kept of a connection until it can be understood: a header, the trailer of a chunked body,
// a chunk's extension. Bodies go through it piece by piece.
constexpr size_t kMostBufferBytes = 32 * 1024;
constexpr size_t kReadBytes = 8 * 1024;  // at a time, where little is to be expected
constexpr auto kIdle = seconds(75);      // between requests
constexpr auto kHeader = seconds(15);    // for a whole header, once it has begun
constexpr auto kBody = seconds(60);      // for a whole body
constexpr auto kWrite = seconds(30);     // for a whole answer to leave
constexpr auto kLinger = seconds(5);     // for what is still on its way after a refusal
constexpr size_t kMostLingerBytes = size_t{64} << 20;

// Whether what is left of a chunked body, where a chunk has ended or none has begun, cannot become
// the head of one. Beast looks only once the line is whole, and in a last chunk once the trailer
// is.
bool is_broken_chunk(std::string_view rest, bool is_first) {
  constexpr std::string_view kEnd = "\r\n";
  if (!is_first) {  // the end of the data before
    if (kEnd.substr(0, rest.size()) != rest.substr(0, kEnd.size())) return true;
    rest.remove_prefix(std::min(kEnd.size(), rest.size()));
  }
  const auto is_digit = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  const auto size_end = std::find_if_not(rest.begin(), rest.end(), is_digit);
  if (size_end == rest.end()) return false;  // more may come
  return size_end == rest.begin() || std::string_view("\r; \t").find(*size_end) == rest.npos;
}

// The client's own id where it is a plain token; else one of ours.
std::string request_id(std::string_view wanted) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  if (!wanted.empty() && wanted.size() <= 128 && std::all_of(wanted.begin(), wanted.end(), plain)) {
    return std::string(wanted);
  }
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string text(32, '0');
  for (size_t half = 0; half < 32; half += 16) {
    uint64_t bits = random();
    for (size_t i = 0; i < 16; ++i, bits >>= 4) text[half + i] = "0123456789abcdef"[bits & 15];
  }
  return text;
}

// A field of a request's head, empty where it is absent.
template <class Head, class Name>
std::string_view field(const Head &head, Name name) {
  const auto value = head[name];
  return {value.data(), value.size()};
}

void add_id(std::string &headers, const std::string &id) {
  headers += "\r\nX-Request-Id: ";
  headers += id;
  headers += "\r\nx-typesafe-request-id: ";
  headers += id;
}

// Ends the watch over a client, however its request ends.
struct Unwatch {
  Waiter &waiter;
  ~Unwatch() {
    if (std::exchange(waiter.watched, false)) {
      waiter.stop_watching.emit(asio::cancellation_type::all);
    }
  }
};

}  // namespace

Session::Session(Socket socket, Service &service)
    : stream_(std::move(socket)), buffer_(kMostBufferBytes), service_(service) {
  boost::system::error_code ignored;  // not of TCP
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
}

void Session::finish() {
  finishing_ = true;
  if (!accepted_) stream_.cancel();
}

asio::awaitable<void> Session::run() {
  while (!finishing_ && co_await exchange()) {
  }
  boost::system::error_code ignored;
  stream_.socket().shutdown(Socket::shutdown_both, ignored);
}

asio::awaitable<bool> Session::exchange() {
  accepted_ = false;
  // Wait for the first byte apart from the rest: the time between requests is the client's own.
  if (buffer_.size() == 0) {
    stream_.expires_after(kIdle);
    const auto [error, n] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kToken);
    if (error) co_return false;
    buffer_.commit(n);
  }

  Parser parser;
  parser.header_limit(kMostHeaderBytes);
  parser.body_limit(decision::kMostBodyBytes);
  stream_.expires_after(kHeader);
  boost::system::error_code error = co_await read_header(parser);
  if (error == bhttp::error::header_limit || error == bhttp::error::buffer_overflow) {
    co_return co_await refuse(
        parser, 431, "the header is larger than " + std::to_string(kMostHeaderBytes) + " bytes");
  }
  if (error) co_return co_await refuse_unread(parser, error);

  const auto &head = parser.get();
  if (head.version() >= 11 && head.count(bhttp::field::host) != 1) {
    co_return co_await refuse(parser, 400,
                              "not a usable HTTP request: exactly one Host header is needed");
  }
  if (const auto codings = head.count(bhttp::field::transfer_encoding); codings > 0) {
    // RFC 9112, 6.1: HTTP/1.0 knows none, and who sends one is not understood the same by all.
    if (codings > 1 || head.version() < 11 ||
        !beast::iequals(head[bhttp::field::transfer_encoding], "chunked")) {
      co_return co_await refuse(parser, 400,
                                "not a usable HTTP request: no Transfer-Encoding but chunked, once "
                                "and in HTTP/1.1, is known");
    }
  }
  const auto header = [&](auto name) { return field(head, name); };
  const auto method = head.method_string();
  const auto target = head.target();
  const std::string cors = service_.cors_headers(header(bhttp::field::origin));
  std::optional<Reply> reply =
      service_.route({{method.data(), method.size()},
                      {target.data(), target.size()},
                      header(bhttp::field::authorization),
                      header(bhttp::field::origin),
                      header(bhttp::field::access_control_request_method),
                      header(bhttp::field::access_control_request_headers)});
  const std::string id = request_id(header("X-Request-Id"));
  const std::string_view expectation = header(bhttp::field::expect);
  if (!reply && !expectation.empty()) {
    if (!beast::iequals(expectation, "100-continue")) {
      reply = error_reply(417, "the only expectation known is 100-continue");
      reply->counts = true;
    } else if (!parser.is_done() && buffer_.size() == 0 && head.version() >= 11) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      stream_.expires_after(kWrite);
      const auto [failure, n] = co_await asio::async_write(
          stream_, asio::buffer(kContinue.data(), kContinue.size()), kToken);
      if (failure) co_return false;
    }
  }
  if (reply && reply->counts) service_.refused(reply->status, id);
  if (reply && !parser.is_done()) {
    // The head decides, and a body is on its way that nobody will read.
    add_id(reply->headers, id);
    reply->headers += cors;
    if (!co_await send(head, *reply, false)) co_return false;
    co_await linger();
    co_return false;
  }
  if (!parser.is_done()) {
    stream_.expires_after(kBody);
    error = co_await read_body(parser);
    if (error == bhttp::error::buffer_overflow) {
      co_return co_await refuse(parser, 431,
                                "a chunk's extension or the trailer is larger than " +
                                    std::to_string(kMostBufferBytes) + " bytes");
    }
    if (error) co_return co_await refuse_unread(parser, error);
  }
  accepted_ = true;
  stream_.expires_never();
  if (!reply) {
    const auto waiter = std::make_shared<Waiter>();
    waiter->id = id;
    waiter->coding = header(bhttp::field::content_encoding);
    if (service_.is_worth_watching()) watch(waiter);
    const Unwatch at_the_end{*waiter};
    reply = co_await service_.decide(std::move(parser.get().body()), waiter);
    if (waiter->gone || reply->drop) co_return false;
  }
  // While draining, a client that stays is sent to look for another worker.
  const bool keep_alive = head.keep_alive() && !finishing_ && !service_.draining();
  add_id(reply->headers, id);
  reply->headers += cors;
  co_return co_await send(head, *reply, keep_alive) && keep_alive;
}

// Beast's own reading bounds each line of a header, not their sum.
asio::awaitable<boost::system::error_code> Session::read_header(Parser &parser) {
  size_t taken = 0;
  for (;;) {
    boost::system::error_code error;
    if (buffer_.size() > 0) {
      const size_t n = parser.put(buffer_.data(), error);
      buffer_.consume(n);
      taken += n;
      if (error && error != bhttp::error::need_more) co_return error;
      const bool whole = parser.is_header_done();
      if (taken + (whole ? 0 : buffer_.size()) > kMostHeaderBytes) {
        co_return make_error_code(bhttp::error::header_limit);
      }
      if (whole) co_return boost::system::error_code{};
    }
    if (error = co_await read_some(kReadBytes); error) co_return error;
  }
}

asio::awaitable<boost::system::error_code> Session::read_body(Parser &parser) {
  parser.eager(true);  // as much as there is
  for (;;) {
    boost::system::error_code error;
    if (buffer_.size() > 0) {
      buffer_.consume(parser.put(buffer_.data(), error));
      if (error && error != bhttp::error::need_more) co_return error;
      if (parser.is_done()) co_return boost::system::error_code{};
      const auto rest = buffer_.data();
      if (parser.chunked() && is_broken_chunk({static_cast<const char *>(rest.data()), rest.size()},
                                              parser.get().body().empty())) {
        co_return make_error_code(bhttp::error::bad_chunk);
      }
    }
    if (error = co_await read_some(kMostBufferBytes); error) co_return error;
  }
}

// Adds to the buffer.
asio::awaitable<boost::system::error_code> Session::read_some(size_t most) {
  // finish() may come between two reads, where there is none to cancel.
  if (finishing_) co_return make_error_code(asio::error::operation_aborted);
  const size_t room = std::min(most, kMostBufferBytes - buffer_.size());
  if (room == 0) co_return make_error_code(bhttp::error::buffer_overflow);
  const auto [error, n] = co_await stream_.async_read_some(buffer_.prepare(room), kToken);
  buffer_.commit(n);
  co_return error;
}

// Answers a request that could not be read to its end, where its client is there to be told.
asio::awaitable<bool> Session::refuse_unread(const Parser &parser,
                                             boost::system::error_code error) {
  if (error == bhttp::error::body_limit) {
    co_return co_await refuse(parser, 413, decision::body_too_large().what());
  }
  // HTTP's own errors are of its grammar; of any other the client has gone or was too slow.
  if (error.category() != make_error_code(bhttp::error::bad_method).category()) co_return false;
  co_return co_await refuse(parser, 400, "not a usable HTTP request: " + error.message());
}

// Notices while a decision is made that the client has closed its end. Whoever only shuts down its
// sending half counts as gone: it looks the same.
void Session::watch(const std::shared_ptr<Waiter> &waiter) {
  waiter->watched = true;
  const auto seen = [this, waiter](const boost::system::error_code &error) {
    if (error || !waiter->watched) return;  // answered, or the session is at its end
    // What has come is the next request of a pipeline, kept for its turn: its sender may yet leave.
    const size_t room = kMostBufferBytes - buffer_.size();
    if (room == 0) return;
    const ssize_t n =
        ::recv(stream_.socket().native_handle(), buffer_.prepare(room).data(), room, MSG_DONTWAIT);
    if (n > 0) buffer_.commit(static_cast<size_t>(n));
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) {
      watch(waiter);
    } else {
      waiter->has_gone();
    }
  };
  stream_.socket().async_wait(Socket::wait_read,
                              asio::bind_cancellation_slot(waiter->stop_watching.slot(), seen));
}

template <class Head>
asio::awaitable<bool> Session::send(const Head &head, const Reply &reply, bool keep_alive) {
  make_message(text_, head.version(), head.method() == bhttp::verb::head, reply, keep_alive);
  accepted_ = true;  // what is being said is said to its end
  stream_.expires_after(kWrite);
  const auto [error, n] = co_await asio::async_write(stream_, asio::buffer(text_), kToken);
  if (text_.capacity() > kMostBufferBytes) text_ = {};  // a connection keeps no large answer's room
  co_return !error;
}

// Answers a request that is not read to its end, by what of its head was understood, and closes.
asio::awaitable<bool> Session::refuse(const Parser &parser, unsigned status,
                                      std::string_view detail) {
  const auto &head = parser.get();
  Reply reply = error_reply(status, detail);
  const std::string id = request_id(field(head, "X-Request-Id"));
  service_.refused(status, id);
  add_id(reply.headers, id);
  reply.headers += service_.cors_headers(field(head, bhttp::field::origin));
  if (co_await send(head, reply, false)) co_await linger();
  co_return false;
}

// Takes what the client is still sending, so that closing does not reset the connection before the
// answer has been read.
asio::awaitable<void> Session::linger() {
  boost::system::error_code ignored;
  stream_.socket().shutdown(Socket::shutdown_send, ignored);
  buffer_.clear();
  stream_.expires_after(kLinger);
  accepted_ = false;
  for (size_t taken = 0; taken < kMostLingerBytes && !finishing_;) {
    const auto [error, n] =
        co_await stream_.async_read_some(buffer_.prepare(kMostBufferBytes), kToken);
    if (error) break;
    taken += n;
  }
}

}  // namespace cua_server::http
