// SPDX-License-Identifier: Apache-2.0
#include "http/reply.h"

#include <utility>

#include "decision/answer.h"

namespace cua_server::http {

Reply json_reply(unsigned status, std::string body) {
  Reply reply;
  reply.status = status;
  reply.body = std::move(body);
  return reply;
}

Reply error_reply(unsigned status, std::string_view detail) {
  return json_reply(status, decision::error_json(detail));
}

}  // namespace cua_server::http
