// SPDX-License-Identifier: Apache-2.0
#include "decision/answer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.h"
#include "decision/parse_json.h"

using namespace cua_server::decision;
using namespace std::string_literals;

namespace {

Question question(std::string name, std::vector<std::string> options) {
  Question out;
  out.name = std::move(name);
  out.labels = options;
  out.options = std::move(options);
  return out;
}

}  // namespace

TEST_CASE("the answer, byte for byte") {
  Request request;
  request.questions = {question("pick", {"yes", "no"}), question("only", {"it"})};
  const std::vector<float> two = {0.26894143f, 0.7310586f}, one = {1.0f};
  const std::vector<Score> scores = {{two, 1, 153}, {one, 0, 65}};
  CHECK(answer_json("id/x@1:text", request, scores) ==
        "{\"model\":\"id/x@1:text\",\"answers\":{"
        "\"pick\":{\"type\":\"choice\",\"choice\":\"no\",\"probabilities\":{"
        "\"yes\":0.2689414322376251,\"no\":0.7310585975646973},\"confidence\":0.1600584758649244},"
        "\"only\":{\"type\":\"choice\",\"choice\":\"it\",\"probabilities\":{\"it\":1.0},"
        "\"confidence\":1.0}},\"usage\":{\"input_tokens\":218,\"output_tokens\":0}}");
}

TEST_CASE("questions and options keep the request's order and spelling") {
  Request request;
  request.questions = {question("10", {"2", "10", "1", "", "\xc3\xa9", "a\"\\\n\0"s}),
                       question("9", {"x"}), question("", {"y"}), question("\xe4\xb8\xad", {"z"})};
  const std::vector<float> six = {0, 0, 0, 0, 1, 0}, one = {1};
  const std::vector<Score> scores = {{six, 5, 1}, {one, 0, 2}, {one, 0, 3}, {one, 0, 4}};
  const std::string text = answer_json("m", request, scores);
  CHECK(text ==
        "{\"model\":\"m\",\"answers\":{"
        "\"10\":{\"type\":\"choice\",\"choice\":\"a\\\"\\\\\\n\\u0000\",\"probabilities\":{\"2\":0."
        "0,\"10\":0.0,"
        "\"1\":0.0,\"\":0.0,\"\xc3\xa9\":1.0,\"a\\\"\\\\\\n\\u0000\":0.0},\"confidence\":1.0},"
        "\"9\":{\"type\":\"choice\",\"choice\":\"x\",\"probabilities\":{\"x\":1.0},\"confidence\":"
        "1.0},"
        "\"\":{\"type\":\"choice\",\"choice\":\"y\",\"probabilities\":{\"y\":1.0},\"confidence\":1."
        "0},"
        "\"\xe4\xb8\xad\":{\"type\":\"choice\",\"choice\":\"z\",\"probabilities\":{\"z\":1.0},"
        "\"confidence\":1.0}},\"usage\":{\"input_tokens\":10,\"output_tokens\":0}}");
  CHECK(parse_json(text).root().size() == 3);
}

TEST_CASE("confidence is one less the entropy over its largest value") {
  const auto of = [](std::vector<float> probabilities) { return confidence(probabilities); };
  CHECK(of({1}) == 1.0);
  CHECK(of({0.3f}) == 1.0);  // one option: whatever it says
  CHECK(of({1, 0}) == 1.0);
  CHECK(of({0, 0, 1}) == 1.0);
  CHECK(of({0.5f, 0.5f}) == 0.0);
  CHECK(of({0.25f, 0.25f, 0.25f, 0.25f}) == 0.0);
  // Never below zero, although the sum of 26 rounded numbers can be above one.
  CHECK(of(std::vector<float>(26, std::nextafter(1.0f / 26, 1.0f))) == 0.0);
  CHECK(of(std::vector<float>(3, 1.0f / 3)) == Approx(0.0).margin(1e-7));
  // The documented answer of the real weights, to the digits that are given.
  CHECK(std::abs(of({1 - 0.99752742f, 0.99752742f}) - 0.97502496) < 5e-7);
  const double p = static_cast<double>(0.7310586f), q = static_cast<double>(0.26894143f);
  CHECK(of({0.26894143f, 0.7310586f}) ==
        Approx(1 + (p * std::log(p) + q * std::log(q)) / std::log(2.0)).epsilon(1e-15));
}

TEST_CASE("a score that cannot be sent is found") {
  const Question two = question("q", {"a", "b"});
  const std::vector<float> good = {0.25f, 0.75f}, one = {1.0f}, three = {0.25f, 0.5f, 0.25f};
  CHECK(is_usable(two, {good, 1, 5}));
  CHECK_FALSE(is_usable(two, {good, 2, 5}));
  CHECK_FALSE(is_usable(two, {one, 0, 5}));
  CHECK_FALSE(is_usable(two, {three, 0, 5}));
  CHECK_FALSE(is_usable(two, {{}, 0, 5}));
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF, -HUGE_VALF, -0.5f}) {
    CHECK_FALSE(is_usable(two, {std::vector<float>{wrong, 1.0f}, 0, 5}));
    CHECK_FALSE(is_usable(two, {std::vector<float>{1.0f, wrong}, 0, 5}));
  }
}

TEST_CASE("the body of an error is valid whatever it says") {
  CHECK(error_json("inference failed") == "{\"detail\":\"inference failed\"}");
  CHECK(error_json("a \"b\" \\ \n\0 \xc3\xa9"s) ==
        "{\"detail\":\"a \\\"b\\\" \\\\ \\n\\u0000 \xc3\xa9\"}");
  for (int first = 0; first < 256; ++first) {
    for (const int second : {0x00, 0x22, 0x5c, 0x7f, 0x80, 0xa0, 0xbf, 0xff}) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second), '\xe2',
                                '\x82'};
      CAPTURE(first, second);
      CHECK_NOTHROW(parse_json(error_json(text)));
    }
  }
}
