// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <string>

#include "http/reply.h"

namespace cua_server::http {

// Makes `out` a whole response, head and body, to be sent in one write. version: 10 or 11, the
// request's. head_request: the body is left out.
void make_message(std::string &out, unsigned version, bool head_request, const Reply &reply,
                  bool keep_alive);

// When to come again: Retry-After in whole seconds, and exactly.
std::string retry_headers(std::chrono::milliseconds later);

}  // namespace cua_server::http
