// SPDX-License-Identifier: Apache-2.0
// The decision room behind a pipe, for oracle.py. Both ways a message is a count and as many
// strings, each a length and its bytes; numbers are 32-bit little-endian.
//   in    body, and for each question its probabilities (32-bit floats), best and token count
//   out   "200", state, answer, then for each question its name, number of options, prompt
//   or    status, body of the error
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "decision/answer.h"
#include "decision/request.h"

using namespace cua_server::decision;

namespace {

bool read(void *to, size_t size) { return std::fread(to, 1, size, stdin) == size; }

bool read_message(std::vector<std::string> &strings) {
  uint32_t count = 0;
  if (!read(&count, sizeof count)) return false;
  strings.assign(count, {});
  for (std::string &string : strings) {
    uint32_t size = 0;
    if (!read(&size, sizeof size)) return false;
    string.resize(size);
    if (!read(string.data(), size)) return false;
  }
  return true;
}

void write_number(size_t number) {
  const auto value = static_cast<uint32_t>(number);
  std::fwrite(&value, sizeof value, 1, stdout);
}

void write_message(const std::vector<std::string> &strings) {
  write_number(strings.size());
  for (const std::string &string : strings) {
    write_number(string.size());
    std::fwrite(string.data(), 1, string.size(), stdout);
  }
  std::fflush(stdout);
}

std::vector<std::string> reply(const std::vector<std::string> &in) {
  const Request request = parse_request(in.front());
  std::vector<std::vector<float>> probabilities(request.questions.size());
  std::vector<Score> scores(request.questions.size());
  std::vector<std::string> out = {"200", request.state, ""};
  for (size_t i = 0; i < scores.size(); ++i) {
    const Question &question = request.questions[i];
    out.push_back(question.name);
    out.push_back(std::to_string(question.options.size()));
    out.push_back(prompt_of(request, question));
    if (in.size() != 1 + 3 * scores.size()) continue;  // the oracle did not expect an answer
    const std::string *const fields = &in[1 + 3 * i];
    probabilities[i].resize(fields[0].size() / sizeof(float));
    std::memcpy(probabilities[i].data(), fields[0].data(), fields[0].size());
    scores[i] = {probabilities[i], std::stoul(fields[1]), std::stoul(fields[2])};
    if (scores[i].probabilities.size() != question.options.size()) return out;
  }
  if (in.size() == 1 + 3 * scores.size()) out[2] = answer_json("test/model", request, scores);
  return out;
}

}  // namespace

int main() {
  std::vector<std::string> in;
  while (read_message(in)) {
    try {
      write_message(reply(in));
    } catch (const RequestError &error) {
      write_message({std::to_string(error.status()), error_json(error.what())});
    }
  }
  return 0;
}
