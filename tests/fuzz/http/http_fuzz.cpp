// SPDX-License-Identifier: Apache-2.0
// Any bytes on a connection. What is answered is well-formed, ends, and does not depend on the
// pieces that the bytes come in. The first byte says how long these are.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decision/parse_json.h"
#include "http/session.h"
#include "telemetry/log.h"

using namespace cua_server;
namespace asio = boost::asio;

namespace {

void require(bool holds, const char *what, std::string_view text) {
  if (holds) return;
  std::fprintf(stderr, "http_fuzz: %s\n%.*s\n", what, static_cast<int>(text.size()), text.data());
  std::abort();
}

struct Worker {
  Library library{CUA_FAKE_LIBRARY};
  scheduling::Engine engine{library, {}};
  scheduling::Engine *engines[1] = {&engine};
  http::Service service;
  scheduling::Scheduler scheduler;
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};

  Worker() : service(service_options()), scheduler(engines, scheduling_options()) {
    telemetry::set_log(telemetry::LogFormat::text, telemetry::Level::error);
    service.is_ready(engines, scheduler);
  }
  static http::ServiceOptions service_options() {
    http::ServiceOptions options;
    options.cors_origins = {"http://page"};
    return options;
  }
  scheduling::SchedulerOptions scheduling_options() {
    scheduling::SchedulerOptions options;
    options.settled = [this] { service.settled(); };
    return options;
  }
};

// What the worker says to these bytes, sent so many at a time, until it closes.
std::string answer(Worker &worker, std::string_view bytes, size_t step) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no socket pair", "");
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  http::Socket socket(worker.context, asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
  http::Session session(std::move(socket), worker.service);
  bool closed = false;
  asio::co_spawn(worker.context, session.run(), [&](std::exception_ptr failure) {
    require(failure == nullptr, "an exception left the session", "");
    closed = true;
  });
  std::string said;
  const auto listen = [&] {
    char piece[4096];
    for (ssize_t n; (n = ::read(ends[1], piece, sizeof piece)) > 0;) {
      said.append(piece, static_cast<size_t>(n));
    }
  };
  while (!bytes.empty() && !closed) {
    const ssize_t n = ::send(ends[1], bytes.data(), std::min(step, bytes.size()), MSG_NOSIGNAL);
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    worker.context.poll();
    listen();
  }
  ::shutdown(ends[1], SHUT_WR);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!closed) {
    worker.context.run_one_for(std::chrono::milliseconds(100));
    listen();
    require(std::chrono::steady_clock::now() < end, "the session does not end", said);
  }
  listen();
  ::close(ends[1]);
  return said;
}

std::string_view cut(std::string_view &text, std::string_view end) {
  const size_t at = text.find(end);
  require(at != text.npos, "an answer without its end", text);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return part;
}

// The answers, each as its status and what is always the same of it.
std::vector<std::string> parts(std::string_view said) {
  std::vector<std::string> all;
  while (!said.empty()) {
    std::string_view head = cut(said, "\r\n\r\n");
    const std::string_view line = head.substr(0, head.find("\r\n"));
    require(line.starts_with("HTTP/1.") && line.size() > 12, "a status line", line);
    std::string part(line.substr(9, 3));
    if (part == "100") continue;
    size_t length = 0;
    while (!head.empty()) {
      const std::string_view header = head.substr(0, head.find("\r\n"));
      head.remove_prefix(std::min(header.size() + 2, head.size()));
      constexpr std::string_view kLength = "Content-Length: ";
      if (!header.starts_with(kLength)) continue;
      std::from_chars(header.data() + kLength.size(), header.data() + header.size(), length);
    }
    // To HEAD there is no body; no body of ours begins as an answer does.
    if (!said.empty() && !said.starts_with("HTTP/1.")) {
      require(said.size() >= length, "a body is cut", said);
      const std::string_view body = said.substr(0, length);
      said.remove_prefix(length);
      if (!body.starts_with("#")) {  // metrics
        decision::parse_json(body);
        // Of several faults that keep it from being read, the one that is seen first is named.
        const bool unread = part == "431" || part == "413" ||
                            body.starts_with("{\"detail\":\"not a usable HTTP request: ");
        part = unread ? "unread" : part + std::string(body);
      }
    }
    all.push_back(std::move(part));
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static Worker &worker = *new Worker;  // its threads outlive main()
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char *>(data) + 1, size - 1);
  const std::vector<std::string> whole = parts(answer(worker, bytes, bytes.size()));
  const std::vector<std::string> pieces = parts(answer(worker, bytes, size_t{1} + data[0]));
  // The end of what a client sends is the client's going: a decision under way may be dropped.
  const size_t both = std::min(whole.size(), pieces.size());
  for (size_t i = 0; i < both; ++i) {
    require(whole[i] == pieces[i], "other answers in pieces", whole[i] + "\n" + pieces[i]);
  }
  return 0;
}
