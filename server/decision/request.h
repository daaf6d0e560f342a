// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "decision/request_error.h"

namespace cua_server::decision {

inline constexpr size_t kMostBodyBytes = 4u << 20;
inline constexpr size_t kMostQuestions = 64;
inline constexpr size_t kMostOptions = 26;
inline constexpr std::string_view kRequestModel = "cua-s1-4b-0.2";

struct Question {
  std::string name;
  std::string goal;                  // empty: none
  std::vector<std::string> options;  // their keys, in request order; 1 to kMostOptions
  std::vector<std::string> labels;   // what the prompt says of each
};

// A request whose every field has passed its check.
struct Request {
  std::string state;
  std::vector<Question> questions;  // in request order
};

// The text to be tokenised. Made when it is needed: 64 questions share one state.
std::string prompt_of(const Request &request, const Question &question);

// The body of POST /v1/systemone. Throws RequestError: 400 not a usable JSON object, 422 a field
// that cannot be answered, 413 more than kMostQuestions. The first fault in the contract's order.
// accepted: what "model" may be beside kRequestModel.
Request parse_request(std::string_view body, const std::vector<std::string> &accepted = {});

// 413 for a question whose prompt has more tokens than the engine takes.
RequestError too_many_tokens(const Question &question, uint64_t tokens, uint64_t limit);
// 413 for a body over kMostBodyBytes.
RequestError body_too_large();

}  // namespace cua_server::decision
