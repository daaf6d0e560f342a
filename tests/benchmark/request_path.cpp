// SPDX-License-Identifier: Apache-2.0
//
// Time from the body of a request to token ids: the worker's decision room and the library's
// tokenizer, without sockets and without a model. Prints JSON.
//   request_path TOKENIZER_JSON BODY_FILE COLD_RUNS WARM_RUNS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "decision/request.h"
#include "tokenizer/tokenizer.h"

namespace {

using cua_server::decision::Question;
using cua_server::decision::Request;

struct Times {
  double parse = 0, prompt = 0, tokenize = 0;  // microseconds
  double all() const { return parse + prompt + tokenize; }
};

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// One request. Adds the number of its tokens to `tokens`, so that the work has an effect.
Times serve(const cua::tokenizer::Tokenizer &tokenizer, const std::string &body, size_t &tokens) {
  Times times;
  auto start = std::chrono::steady_clock::now();
  const Request request = cua_server::decision::parse_request(body);
  times.parse = since(start);
  for (const Question &question : request.questions) {
    start = std::chrono::steady_clock::now();
    const std::string prompt = cua_server::decision::prompt_of(request, question);
    times.prompt += since(start);
    start = std::chrono::steady_clock::now();
    tokens += tokenizer.encode(prompt).size();
    times.tokenize += since(start);
  }
  return times;
}

double quantile(const std::vector<Times> &runs, double (*field)(const Times &), double q) {
  std::vector<double> values;
  for (const Times &times : runs) values.push_back(field(times));
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

void print(const char *name, const std::vector<Times> &runs) {
  const auto median = [&](double (*field)(const Times &)) { return quantile(runs, field, 0.5); };
  const auto all = [](const Times &t) { return t.all(); };
  std::printf(
      "\"%s\":{\"runs\":%zu,\"parse_us\":%.2f,\"prompt_us\":%.2f,\"tokenize_us\":%.2f,"
      "\"median_us\":%.2f,\"min_us\":%.2f,\"p95_us\":%.2f}",
      name, runs.size(), median([](const Times &t) { return t.parse; }),
      median([](const Times &t) { return t.prompt; }),
      median([](const Times &t) { return t.tokenize; }), quantile(runs, all, 0.5),
      quantile(runs, all, 0), quantile(runs, all, 0.95));
}

int measure(char **argv) {
  std::ifstream file(argv[2], std::ios::binary);
  const std::string body{std::istreambuf_iterator<char>(file), {}};
  const long cold_runs = std::max(1l, std::atol(argv[3])),
             warm_runs = std::max(1l, std::atol(argv[4]));
  std::optional<cua::tokenizer::Tokenizer> tokenizer;
  std::vector<Times> cold, warm;
  size_t tokens = 0;
  for (long i = 0; i < cold_runs; ++i) {
    tokenizer.emplace(argv[1]);  // nothing cached
    cold.push_back(serve(*tokenizer, body, tokens));
  }
  const size_t per_request = tokens / static_cast<size_t>(cold_runs);
  for (long i = 0; i < warm_runs; ++i) warm.push_back(serve(*tokenizer, body, tokens));
  if (tokens != per_request * static_cast<size_t>(cold_runs + warm_runs)) {
    std::fprintf(stderr, "the number of tokens changed from run to run\n");
    return 1;
  }
  std::printf("{\"bytes\":%zu,\"tokens\":%zu,", body.size(), per_request);
  print("cold", cold);
  std::printf(",");
  print("warm", warm);
  std::printf("}\n");
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: request_path TOKENIZER_JSON BODY_FILE COLD_RUNS WARM_RUNS\n");
    return 2;
  }
  try {
    return measure(argv);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "request_path: %s\n", error.what());
    return 1;
  }
}
