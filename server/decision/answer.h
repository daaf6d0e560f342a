// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "decision/request.h"

namespace cua_server::decision {

// Model ids of the demonstration model, and what whoever meets one is told.
inline constexpr std::string_view kDemonstrationIds = "cua-demo-";
inline constexpr std::string_view kDemonstrationNote =
    "the demonstration model, trained on generated screens to show how decisions work; not Cua-S1";
constexpr bool is_demonstration(std::string_view model_id) {
  return model_id.substr(0, kDemonstrationIds.size()) == kDemonstrationIds;
}

// What the engine said of one question.
struct Score {
  std::span<const float> probabilities;  // one an option in request order
  size_t best = 0;                       // index of the chosen option
  uint64_t tokens = 0;                   // of the prompt
};

// Whether the score is of this question's options and can be written: false for a NaN, which a
// library must not return. What is not usable is a failed inference, never an answer.
bool is_usable(const Question &question, const Score &score);

// max(0, 1 - H(p) / ln n) over n options; 1 for one.
double confidence(std::span<const float> probabilities);

// The body of a 200: questions and options in request order. scores: one a question, all usable.
std::string answer_json(std::string_view model_id, const Request &request,
                        std::span<const Score> scores);

// The body of every error, {"detail":"..."}; valid UTF-8 whatever `detail` holds.
std::string error_json(std::string_view detail);

}  // namespace cua_server::decision
