// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a request.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "decision/answer.h"
#include "decision/parse_json.h"
#include "decision/prompt.h"
#include "decision/python_json.h"
#include "decision/quote.h"
#include "decision/request.h"

using namespace cua_server::decision;

namespace {

void require(bool holds, const char *what) {
  if (holds) return;
  std::fprintf(stderr, "json_fuzz: %s\n", what);
  std::abort();
}

void check_detail(const RequestError &error) {
  const std::string detail = error.what();
  require(!detail.empty() && detail.size() < 500, "an empty or a long detail");
  require(make_utf8(detail) == detail, "a detail that is not UTF-8");
  const std::string body = error_json(detail);
  const JsonDocument document = parse_json(body);
  require(document.root().find("detail")->text() == detail, "a detail that does not come back");
}

bool same(const Json &a, const Json &b) {
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Json::Type::kNull:
      return true;
    case Json::Type::kBoolean:
      return a.boolean() == b.boolean();
    case Json::Type::kReal:
      return a.real() == b.real() && std::signbit(a.real()) == std::signbit(b.real());
    case Json::Type::kInteger:
    case Json::Type::kString:
      return a.text() == b.text();
    case Json::Type::kArray:
    case Json::Type::kObject: {
      if (a.size() != b.size()) return false;
      const size_t n = a.size() * (a.is(Json::Type::kObject) ? 2 : 1);
      const Json *x = a.first(), *y = b.first();
      for (size_t i = 0; i < n; ++i, x = x->next(), y = y->next()) {
        if (!same(*x, *y)) return false;
      }
      return true;
    }
  }
  return false;
}

std::vector<std::string> prompts(const Request &request) {
  std::vector<std::string> out;
  for (const Question &question : request.questions) out.push_back(prompt_of(request, question));
  return out;
}

void check_request(const Request &request) {
  require(!request.questions.empty() && request.questions.size() <= kMostQuestions, "questions");
  std::vector<std::vector<float>> probabilities;
  for (const Question &question : request.questions) {
    const size_t n = question.options.size();
    require(n >= 1 && n <= kMostOptions && question.labels.size() == n, "options");
    const std::string text = prompt_of(request, question);
    require(text.starts_with(prompt_prefix()) && text.ends_with("\n<think>\n"), "a prompt's ends");
    require(make_utf8(text) == text, "a prompt that is not UTF-8");
    probabilities.emplace_back(n, 1.0f / static_cast<float>(n));
  }
  std::vector<Score> scores;
  for (const std::vector<float> &p : probabilities) scores.push_back({p, p.size() - 1, 1});
  const std::string answer = answer_json("model", request, scores);
  const JsonDocument document = parse_json(answer);
  const Json *const answers = document.root().find("answers");
  require(answers->size() == request.questions.size(), "answers");
  for (const Question &question : request.questions) {
    require(answers->find(question.name)->find("choice")->text() == question.options.back(),
            "a choice that does not come back");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view body(reinterpret_cast<const char *>(data), size);
  std::string rewritten;
  try {
    const JsonDocument document = parse_json(body);
    rewritten = python_json(document.root());
    require(make_utf8(rewritten) == rewritten, "text that is not UTF-8 was taken");
    const JsonDocument again = parse_json(rewritten);
    require(same(document.root(), again.root()), "another tree after writing and reading");
  } catch (const RequestError &error) {
    require(error.status() == 400 && rewritten.empty(), "what was written is refused");
    check_detail(error);
    try {
      parse_request(body);
      require(false, "a request that is not JSON");
    } catch (const RequestError &same_error) {
      require(same_error.what() == std::string_view(error.what()), "another error");
    }
    return 0;
  }
  try {
    const Request request = parse_request(body);
    check_request(request);
    require(prompts(parse_request(rewritten)) == prompts(request), "other prompts after rewriting");
  } catch (const RequestError &error) {
    require(error.status() == 400 || error.status() == 413 || error.status() == 422, "a status");
    check_detail(error);
  }
  return 0;
}
