// SPDX-License-Identifier: Apache-2.0
// The two halves of the house together: the prompts of the collected requests have the token counts
// that were recorded for them, and begin with the same 78 tokens.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"
#include "decision/parse_json.h"
#include "decision/prompt.h"
#include "decision/python_json.h"
#include "decision/request.h"
#include "tokenizer/tokenizer.h"

using namespace cua_server::decision;

TEST_CASE("token counts of the collected requests") {
  const cua::tokenizer::Tokenizer tokenizer(CUA_TEST_DATA "/tokenizer/tokenizer.json");
  const std::vector<uint32_t> prefix = tokenizer.encode(prompt_prefix());
  CHECK(prefix.size() == 78);

  std::ifstream fixture_file(CUA_TEST_DATA "/tokenizer/fixture.json");
  std::stringstream fixture_text;
  fixture_text << fixture_file.rdbuf();
  const std::string fixture_bytes = fixture_text.str();
  const JsonDocument fixture = parse_json(fixture_bytes);
  std::vector<uint32_t> fixture_ids;
  const Json *const ids = fixture.root().find("ids");
  const Json *id = ids->first();
  for (size_t i = 0; i < ids->size(); ++i, id = id->next()) {
    fixture_ids.push_back(static_cast<uint32_t>(std::stoul(std::string(id->text()))));
  }

  std::ifstream file(CUA_TEST_DATA "/requests/systemone-samples.jsonl");
  std::string line;
  size_t questions = 0;
  for (size_t lines = 0; std::getline(file, line); ++lines) {
    const JsonDocument sample = parse_json(line);
    CAPTURE(sample.root().find("name")->text());
    const std::string body = python_json(*sample.root().find("request"));
    const Request request = parse_request(body);
    const Json *const counts = sample.root().find("prompt_tokens");
    REQUIRE(counts->size() == request.questions.size());
    for (const Question &question : request.questions) {
      const std::vector<uint32_t> tokens = tokenizer.encode(prompt_of(request, question));
      CHECK(std::to_string(tokens.size()) == counts->find(question.name)->text());
      CHECK(std::equal(prefix.begin(), prefix.end(), tokens.begin()));
      if (lines == 0) CHECK(tokens == fixture_ids);
      ++questions;
    }
  }
  CHECK(questions == 71);
}
