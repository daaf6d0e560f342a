// SPDX-License-Identifier: Apache-2.0
#include "decision/answer.h"

#include <algorithm>
#include <cmath>

#include "decision/python_json.h"
#include "decision/quote.h"

namespace cua_server::decision {
namespace {

void append_string(std::string &out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

}  // namespace

bool is_usable(const Question &question, const Score &score) {
  return score.probabilities.size() == question.options.size() &&
         score.best < question.options.size() &&
         std::all_of(score.probabilities.begin(), score.probabilities.end(),
                     [](float p) { return p >= 0 && std::isfinite(p); });
}

double confidence(std::span<const float> probabilities) {
  if (probabilities.size() == 1) return 1.0;
  double entropy = 0;
  for (const float p : probabilities) {
    if (p > 0) entropy -= static_cast<double>(p) * std::log(static_cast<double>(p));
  }
  return std::max(0.0, 1.0 - entropy / std::log(static_cast<double>(probabilities.size())));
}

std::string answer_json(std::string_view model_id, const Request &request,
                        std::span<const Score> scores) {
  size_t size = 128 + model_id.size();
  for (const Question &question : request.questions) {
    size += 128 + question.name.size();
    for (const std::string &option : question.options) size += 32 + 2 * option.size();
  }
  std::string out;
  out.reserve(size);
  out += "{\"model\":";
  append_string(out, model_id);
  out += ",\"answers\":{";
  uint64_t tokens = 0;
  for (size_t i = 0; i < request.questions.size(); ++i) {
    const Question &question = request.questions[i];
    const Score &score = scores[i];
    if (i > 0) out += ',';
    append_string(out, question.name);
    out += ":{\"type\":\"choice\",\"choice\":";
    append_string(out, question.options[score.best]);
    out += ",\"probabilities\":{";
    for (size_t j = 0; j < question.options.size(); ++j) {
      if (j > 0) out += ',';
      append_string(out, question.options[j]);
      out += ':';
      append_repr(out, static_cast<double>(score.probabilities[j]));
    }
    out += "},\"confidence\":";
    append_repr(out, confidence(score.probabilities));
    out += '}';
    tokens += score.tokens;
  }
  out += "},\"usage\":{\"input_tokens\":" + std::to_string(tokens) + ",\"output_tokens\":0}}";
  return out;
}

std::string error_json(std::string_view detail) {
  std::string out = "{\"detail\":";
  append_string(out, make_utf8(detail));
  return out + '}';
}

}  // namespace cua_server::decision
