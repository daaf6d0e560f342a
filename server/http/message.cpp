// SPDX-License-Identifier: Apache-2.0
#include "http/message.h"

#include <boost/beast/http/status.hpp>
#include <ctime>
#include <string_view>

namespace cua_server::http {
namespace {

// The Date header, made once a second.
const std::string &date() {
  thread_local std::time_t made = -1;
  thread_local std::string text;
  if (const std::time_t now = std::time(nullptr); now != made) {
    made = now;
    std::tm utc{};
    gmtime_r(&now, &utc);
    char buffer[40];
    text.assign(buffer, std::strftime(buffer, sizeof buffer, "%a, %d %b %Y %H:%M:%S GMT", &utc));
  }
  return text;
}

}  // namespace

void make_message(std::string &out, unsigned version, bool head_request, const Reply &reply,
                  bool keep_alive) {
  namespace bhttp = boost::beast::http;
  out.clear();
  out.reserve(512 + reply.headers.size() + reply.body.size());
  out += version >= 11 ? "HTTP/1.1 " : "HTTP/1.0 ";
  out += std::to_string(reply.status);
  out += ' ';
  out += std::string_view(bhttp::obsolete_reason(static_cast<bhttp::status>(reply.status)));
  out += "\r\nDate: ";
  out += date();
  if (reply.status != 204) {  // RFC 9110, 8.6: a 204 has no body to tell of
    out += "\r\nContent-Type: ";
    out += reply.type;
    out += "\r\nContent-Length: ";
    out += std::to_string(reply.body.size());
  }
  if (!reply.allow.empty()) {
    out += "\r\nAllow: ";
    out += reply.allow;
  }
  out += reply.headers;
  if (!keep_alive) {
    out += "\r\nConnection: close";
  } else if (version < 11) {
    out += "\r\nConnection: keep-alive";
  }
  out += "\r\n\r\n";
  if (!head_request) out += reply.body;
}

std::string retry_headers(std::chrono::milliseconds later) {
  return "\r\nRetry-After: " + std::to_string((later.count() + 999) / 1000) +
         "\r\nretry-after-ms: " + std::to_string(later.count());
}

}  // namespace cua_server::http
