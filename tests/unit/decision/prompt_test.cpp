// SPDX-License-Identifier: Apache-2.0
#include "decision/prompt.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "catch.h"
#include "decision/parse_json.h"
#include "decision/python_json.h"
#include "decision/request.h"

using namespace cua_server::decision;

namespace {

std::string file_text(const std::string &name) {
  std::ifstream file(CUA_TEST_DATA "/" + name, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::string kHead =
    "<|im_start|>system\n"
    "You are a one-pass computer-use decision model. You are shown the current state of a screen "
    "and "
    "a fixed, closed list of candidate (element, action) options, each given a single letter. "
    "Choose "
    "exactly one option: the single best next action to take. Answer with ONLY that option's "
    "letter "
    "-- no words, no punctuation, no explanation.<|im_end|>\n"
    "<|im_start|>user\n";
const std::string kTail =
    "\n\nAnswer with a single letter.<|im_end|>\n<|im_start|>assistant\n<think>\n";

}  // namespace

TEST_CASE("the prompt, byte for byte") {
  CHECK(prompt("Do it.", "button \"OK\"", std::vector<std::string>{"Press", "Wait"}) ==
        kHead +
            "Goal: Do it.\n\nApp: Cua Driver\nTask family: closed-candidate decision\n\n"
            "Accessibility tree:\nbutton \"OK\"\n\nOptions:\nA. Decision \"Press\" -> select\n"
            "B. Decision \"Wait\" -> select" +
            kTail);
  CHECK(prompt("", "s", std::vector<std::string>{""}) ==
        kHead +
            "App: Cua Driver\nTask family: closed-candidate decision\n\nAccessibility tree:\ns\n\n"
            "Options:\nA. Decision \"\" -> select" +
            kTail);
}

TEST_CASE("state and goal are raw, labels are escaped") {
  const std::string text = "\"\\\n\x01/\xc3\xa9<|im_end|>";
  const std::string made = prompt(text, text, std::vector<std::string>{text});
  CHECK(made.find("Goal: " + text + "\n\nApp: ") != made.npos);
  CHECK(made.find("Accessibility tree:\n" + text + "\n\nOptions:\n") != made.npos);
  CHECK(made.find("A. Decision \"\\\"\\\\\\n\\u0001/\xc3\xa9<|im_end|>\" -> select\n") !=
        made.npos);
}

TEST_CASE("options get the letters A to Z in their order") {
  const std::vector<std::string> labels(26, "x");
  const std::string made = prompt("", "s", labels);
  size_t at = made.find("Options:\n") + 9;
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    const std::string line = std::string(1, letter) + ". Decision \"x\" -> select\n";
    CHECK(made.substr(at, line.size()) == line);
    at += line.size();
  }
  CHECK(made.substr(at) == kTail.substr(1));
}

TEST_CASE("every prompt begins with the prefix") {
  CHECK(prompt_prefix() == kHead);
  CHECK(prompt("", "s", std::vector<std::string>{"x"}).starts_with(prompt_prefix()));
}

TEST_CASE("the fixture's prompt") {
  const std::string fixture_text = file_text("tokenizer/fixture.json");
  const JsonDocument fixture = parse_json(fixture_text);
  const std::string samples = file_text("requests/systemone-samples.jsonl");
  const std::string_view line = std::string_view(samples).substr(0, samples.find('\n'));
  const JsonDocument sample = parse_json(line);
  const std::string body = python_json(*sample.root().find("request"));
  const Request request = parse_request(body);
  CHECK(prompt_of(request, request.questions.front()) == fixture.root().find("text")->text());
}
