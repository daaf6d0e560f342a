// SPDX-License-Identifier: Apache-2.0
#include "decision/request.h"

#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "refusal.h"

using namespace cua_server::decision;

namespace {

Refusal refusal(std::string_view body) {
  return refusal_of([&] { parse_request(body); });
}

// A request as text: fields by name, each as JSON; nullptr leaves it out.
struct Body {
  const char *model = "\"cua-s1-4b-0.2\"";
  const char *state = "\"s\"";
  const char *type = "\"choice\"";
  const char *instructions = "\"go\"";
  const char *criteria = "{\"a\":\"A\",\"b\":\"B\"}";
  std::string question;   // instead of the object made of the last three
  std::string questions;  // instead of {"q":question}

  static std::string object(const std::vector<std::pair<const char *, const char *>> &fields) {
    std::string out = "{";
    for (const auto &[name, value] : fields) {
      if (value == nullptr) continue;
      if (out.size() > 1) out += ',';
      out += "\"" + std::string(name) + "\":" + value;
    }
    return out + "}";
  }
  std::string question_text() const {
    if (!question.empty()) return question;
    return object({{"type", type}, {"instructions", instructions}, {"criteria", criteria}});
  }
  std::string text() const {
    const std::string all = questions.empty() ? "{\"q\":" + question_text() + "}" : questions;
    return object({{"model", model}, {"state", state}, {"questions", all.c_str()}});
  }
};

Request parse(const Body &body) {
  const std::string text = body.text();
  return parse_request(text);
}
Refusal refusal(const Body &body) { return refusal(body.text()); }

std::string many(size_t count, const std::string &value) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":" + value;
  }
  return "{" + out + "}";
}

}  // namespace

TEST_CASE("a good request") {
  const Request request = parse({});
  CHECK(request.state == "s");
  REQUIRE(request.questions.size() == 1);
  CHECK(request.questions[0].name == "q");
  CHECK(request.questions[0].goal == "go");
  CHECK(request.questions[0].options == std::vector<std::string>{"a", "b"});
  CHECK(request.questions[0].labels == std::vector<std::string>{"A", "B"});
}

TEST_CASE("the top level is an object") {
  for (const char *const body : {"[1,2]", "\"x\"", "null", "3", "2.5", "true", "[]", "[{}]"}) {
    CAPTURE(body);
    CHECK(refusal(body).status == 400);
    CHECK(refusal(body).says("object"));
  }
  CHECK(refusal("{}").status == 422);
}

TEST_CASE("every field takes its types and refuses the others") {
  // The six types, the empty ones too, and no field at all.
  const char *const values[] = {"null", "true", "false", "3",  "2.5",           "\"text\"",
                                "\"\"", "[]",   "[1]",   "{}", "{\"k\":\"v\"}", nullptr};
  const struct {
    const char *field;
    const char *Body::*member;
    std::vector<std::string> accepted;  // "" for a missing field
  } fields[] = {
      {"model", &Body::model, {}},
      {"state", &Body::state, {"\"text\"", "[1]", "{\"k\":\"v\"}"}},
      {"type", &Body::type, {}},
      {"instructions",
       &Body::instructions,
       {"null", "\"text\"", "\"\"", "[]", "[1]", "{}", "{\"k\":\"v\"}"}},
      {"criteria", &Body::criteria, {"{\"k\":\"v\"}"}},
  };
  for (const auto &[field, member, accepted] : fields) {
    for (const char *const value : values) {
      const std::string shown = value == nullptr ? "" : value;
      CAPTURE(field, shown);
      Body body;
      body.*member = value;
      if (std::find(accepted.begin(), accepted.end(), shown) != accepted.end()) {
        CHECK(refusal(body).status == 0);
      } else {
        CHECK(refusal(body).status == 422);
        CHECK(refusal(body).says(field));
      }
    }
  }
  for (const char *const value : values) {
    const std::string shown = value == nullptr ? "" : value;
    CAPTURE(shown);
    Body questions;
    questions.questions = shown;
    if (value == nullptr) {
      CHECK(refusal("{\"model\":\"cua-s1-4b-0.2\",\"state\":\"s\"}").says("\"questions\""));
      continue;
    }
    CHECK(refusal(questions).status == 422);  // {"k":"v"} holds no question
    Body question;
    question.question = value;
    CHECK(refusal(question).status == 422);
    CHECK(refusal(question).says("\"q\""));
    Body label;
    const std::string criteria = "{\"a\":" + shown + "}";
    label.criteria = criteria.c_str();
    const bool refused = shown == "true" || shown == "false" || shown == "3" || shown == "2.5";
    CHECK(refusal(label).status == (refused ? 422u : 0u));
    if (refused) {
      CHECK(refusal(label).says("\"q\""));
      CHECK(refusal(label).says("\"a\""));
    }
  }
}

TEST_CASE("the model is one exact string") {
  for (const char *const model :
       {"\"\"", "\"cua-s1-4b-0.2 \"", "\"CUA-S1-4B-0.2\"", "\"cua-s1-4b\"",
        "\"cua-s1-4b-0.2\\u0000\"", "[\"cua-s1-4b-0.2\"]"}) {
    CAPTURE(model);
    Body body;
    body.model = model;
    CHECK(refusal(body).status == 422);
    CHECK(refusal(body).says("cua-s1-4b-0.2"));
  }
  Body body;
  body.model = "\"cua\\u002ds1-4b-0.2\"";
  CHECK(refusal(body).status == 0);
}

TEST_CASE("state is a string as it is, or an object or array as Python writes it") {
  const char *const cases[][2] = {
      {"\" \"", " "},
      {"\"a\\n\\\"b\\\"\\u0000\"", nullptr},
      {"{\"a\":null}", "{\"a\": null}"},
      {"[null]", "[null]"},
      {"[\"\"]", "[\"\"]"},
      {"[[]]", "[[]]"},
      {"{\"\":{}}", "{\"\": {}}"},
      {"{\"b\":[1,2.50,\"\\u00e9\"],\"a\":-0}", "{\"b\": [1, 2.5, \"\xc3\xa9\"], \"a\": 0}"},
  };
  for (const auto &[state, expected] : cases) {
    Body body;
    body.state = state;
    CHECK(parse(body).state == (expected == nullptr ? std::string("a\n\"b\"\0", 6) : expected));
  }
  for (const char *const state : {"\"\"", "{}", "[]", "{ }", "[\n]"}) {
    Body body;
    body.state = state;
    CHECK(refusal(body).status == 422);
    CHECK(refusal(body).says("\"state\" is empty"));
  }
}

TEST_CASE("instructions become the goal") {
  const char *const cases[][2] = {{"null", ""},
                                  {"\"\"", ""},
                                  {"{}", "{}"},
                                  {"[]", "[]"},
                                  {"\" \"", " "},
                                  {"\"a\\nb\"", "a\nb"},
                                  {"{\"a\":1.0}", "{\"a\": 1.0}"}};
  for (const auto &[instructions, goal] : cases) {
    Body body;
    body.instructions = instructions;
    CHECK(parse(body).questions[0].goal == goal);
  }
}

TEST_CASE("labels are strings, serialised containers, or the option's key") {
  Body body;
  body.criteria =
      "{\"10\":\"ten\",\"9\":null,\"\":null,\"e\":\"\",\"o\":{\"k\":[1]},\"l\":[\"\\u00e9\"],"
      "\"\\u00e9\":null}";
  const Question question = parse(body).questions[0];
  CHECK(question.options == std::vector<std::string>{"10", "9", "", "e", "o", "l", "\xc3\xa9"});
  CHECK(question.labels ==
        std::vector<std::string>{"ten", "9", "", "", "{\"k\": [1]}", "[\"\xc3\xa9\"]", "\xc3\xa9"});
}

TEST_CASE("types other than choice") {
  for (const char *const type : {"\"score\"", "\"noul\""}) {
    Body body;
    body.type = type;
    CHECK(refusal(body).status == 422);
    CHECK(refusal(body).says("not supported"));
    // One such question refuses the whole request.
    const std::string good = Body().question_text();
    body.questions = "{\"a\":" + good + ",\"b\":" + body.question_text() + ",\"c\":" + good + "}";
    CHECK(refusal(body).says("not supported"));
    CHECK(refusal(body).says("\"b\""));
  }
  for (const char *const type :
       {"\"\"", "\"Choice\"", "\"choice \"", "\"noul2\"", "null", "true", "1", "[]", "{}"}) {
    Body body;
    body.type = type;
    CHECK(refusal(body).says("unknown type"));
  }
  Body body;
  body.type = nullptr;
  CHECK(refusal(body).says("unknown type"));
  CHECK(refusal(body).says("missing"));
}

TEST_CASE("1 to 26 options, 1 to 64 questions") {
  for (const size_t n : {1, 2, 25, 26}) {
    const std::string criteria = many(n, "null");
    Body body;
    body.criteria = criteria.c_str();
    CHECK(parse(body).questions[0].options.size() == n);
  }
  for (const size_t n : {0, 27, 100}) {
    const std::string criteria = many(n, "null");
    Body body;
    body.criteria = criteria.c_str();
    CHECK(refusal(body).status == 422);
    CHECK(refusal(body).says("\"criteria\" has " + std::to_string(n)));
  }
  Body body;
  const std::string question = body.question_text();
  body.questions = many(64, question);
  const Request request = parse(body);
  REQUIRE(request.questions.size() == 64);
  for (size_t i = 0; i < 64; ++i) CHECK(request.questions[i].name == std::to_string(i));
  body.questions = many(65, question);
  CHECK(refusal(body).status == 413);
  CHECK(refusal(body).says("65"));
  CHECK(refusal(body).says("64"));
  body.questions = many(65, "3");  // before any of them is checked
  CHECK(refusal(body).status == 413);
  body.questions = "{}";
  CHECK(refusal(body).status == 422);
}

TEST_CASE("an empty name or key is a name or key") {
  Body body;
  body.questions = "{\"\":" + body.question_text() + "}";
  CHECK(parse(body).questions[0].name.empty());
  body = {};
  body.criteria = "{\"\":\"\"}";
  CHECK(parse(body).questions[0].options[0].empty());
  CHECK(parse(body).questions[0].labels[0].empty());
}

TEST_CASE("unknown keys are ignored, at every level") {
  const std::string unknown = "\"Model\":1,\"extra\":{\"state\":[null]},\"\":[]";
  CHECK(refusal("{" + unknown +
                ",\"model\":\"cua-s1-4b-0.2\",\"state\":\"s\",\"questions\":{\"q\":{" + unknown +
                ",\"type\":\"choice\",\"instructions\":null,\"criteria\":{\"a\":{" + unknown +
                "}}}}}")
            .status == 0);
}

TEST_CASE("the first fault in the order of the contract is reported") {
  // Every fault at once, mended one by one.
  struct Step {
    unsigned status;
    const char *says;
  };
  const auto question = [](const char *type, const char *instructions, const char *criteria) {
    return Body::object({{"type", type}, {"instructions", instructions}, {"criteria", criteria}});
  };
  const std::string bad = question("\"x\"", "1", "1");
  const std::string with_bad = "{\"p\":1,\"q\":" + bad + "}";
  const std::string many_bad = many(65, "1");
  const struct {
    std::string body;
    unsigned status;
    const char *says;
  } steps[] = {
      {"{\"model\":1,\"model\":1,\"state\":1}", 400, "\"model\" appears twice"},
      {Body::object({{"model", "1"}, {"state", "1"}, {"questions", "1"}}), 422, "\"model\""},
      {Body::object({{"state", "1"}, {"questions", many_bad.c_str()}}), 422, "\"model\""},
      {Body::object({{"questions", many_bad.c_str()}, {"model", "\"cua-s1-4b-0.2\""}}), 422,
       "\"state\""},
      {Body::object(
           {{"questions", many_bad.c_str()}, {"state", "1"}, {"model", "\"cua-s1-4b-0.2\""}}),
       422, "\"state\""},
      {Body::object(
           {{"questions", many_bad.c_str()}, {"state", "\"s\""}, {"model", "\"cua-s1-4b-0.2\""}}),
       413, "65"},
      {Body::object(
           {{"questions", with_bad.c_str()}, {"state", "\"s\""}, {"model", "\"cua-s1-4b-0.2\""}}),
       422, "\"p\""},
  };
  for (const auto &[body, status, says] : steps) {
    CAPTURE(body.substr(0, 100), says);
    CHECK(refusal(body).status == status);
    CHECK(refusal(body).says(says));
  }
  const auto of = [](const std::string &first, const std::string &second) {
    Body body;
    body.questions = "{\"p\":" + first + ",\"q\":" + second + "}";
    return refusal(body);
  };
  const std::string good = Body().question_text();
  CHECK(of(bad, "1").says("\"type\"") == false);
  CHECK(of(bad, "1").says("unknown type"));
  CHECK(of(question("\"choice\"", "1", "1"), "1").says("\"instructions\""));
  CHECK(of(question("\"choice\"", nullptr, "1"), "1").says("\"instructions\""));
  CHECK(of(question("\"choice\"", "\"\"", "1"), "1").says("\"criteria\""));
  CHECK(of(question("\"choice\"", "\"\"", "{\"a\":null,\"b\":1,\"c\":2}"), "1").says("\"b\""));
  CHECK(of(good, "1").says("\"q\""));
  CHECK(of(good, good).status == 0);
}

TEST_CASE("messages name the question and stay short") {
  const std::string name(100000, 'n');
  Body body;
  body.questions = "{\"" + name + "\":{\"type\":\"" + name + "\"}}";
  CHECK(refusal(body).says("\"nnnn"));
  CHECK(refusal(body).detail.size() < 400);
  const std::string model = "\"" + name + "\"";
  body = {};
  body.model = model.c_str();
  CHECK(refusal(body).detail.size() < 400);
  const std::string criteria = "{\"" + name + "\":1}";
  body = {};
  body.criteria = criteria.c_str();
  CHECK(refusal(body).detail.size() < 400);
  CHECK(refusal("{\"" + name + "\":1,\"" + name + "\":1}").detail.size() < 400);
  CHECK(refusal("[" + std::string(3000, '9') + "e9]").detail.size() < 400);
  body = {};
  body.questions = "{\"a\\u0000b\\nc\":1}";
  CHECK(refusal(body).says("\"a\\u0000b\\nc\""));
  CHECK(refusal(body).says("an object is needed"));  // nothing is lost behind the NUL
}

TEST_CASE("what the caller refuses itself") {
  Question question;
  question.name = "pick";
  const RequestError tokens = too_many_tokens(question, 16385, 16384);
  CHECK(tokens.status() == 413);
  for (const char *const words : {"\"pick\"", "16385", "16384"}) {
    CHECK(std::string(tokens.what()).find(words) != std::string::npos);
  }
  CHECK(body_too_large().status() == 413);
  CHECK(std::string(body_too_large().what()).find("4194304") != std::string::npos);
  CHECK(kMostBodyBytes == 4194304);
}
