// SPDX-License-Identifier: Apache-2.0
#include "decision/request.h"

#include "decision/json.h"
#include "decision/parse_json.h"
#include "decision/prompt.h"
#include "decision/python_json.h"
#include "decision/quote.h"

namespace cua_server::decision {
namespace {

[[noreturn]] void refuse(const std::string &detail) { throw RequestError(422, detail); }

// What a field is, for a message: "missing" or "is a number".
std::string found(const Json *value) {
  return value == nullptr ? "is missing" : std::string("is ") + value->type_name();
}

// A string as it is; an object or array as Python writes it; nothing for other types.
const std::string *text_of(const Json &value, std::string &storage) {
  if (value.string() != nullptr) return value.string();
  if (value.object() == nullptr && value.array() == nullptr) return nullptr;
  storage = python_json(value);
  return &storage;
}

bool empty(const Json &value) {
  if (const auto *const string = value.string()) return string->empty();
  if (const auto *const array = value.array()) return array->empty();
  if (const auto *const object = value.object()) return object->empty();
  return false;
}

Question parse_question(const std::string &name, const Json &json) {
  const std::string where = "question " + quote_short(name) + ": ";
  if (json.object() == nullptr) refuse(where + found(&json) + "; an object is needed");

  const Json *const type = json.find("type");
  if (type == nullptr || type->string() == nullptr) {
    refuse(where + "unknown type: \"type\" " + found(type) + "; \"choice\" is needed");
  }
  if (*type->string() == "score" || *type->string() == "noul") {
    refuse(where + "the type " + quote_short(*type->string()) +
           " is not supported; only \"choice\" is");
  }
  if (*type->string() != "choice") {
    refuse(where + "unknown type " + quote_short(*type->string()) + "; \"choice\" is needed");
  }

  const Json *const instructions = json.find("instructions");
  std::string goal_storage;
  static const std::string no_goal;
  const std::string *goal = instructions == nullptr   ? nullptr
                            : instructions->is_null() ? &no_goal
                                                      : text_of(*instructions, goal_storage);
  if (goal == nullptr) {
    refuse(where + "\"instructions\" " + found(instructions) +
           "; a string, an object, an array or null is needed");
  }

  const Json *const criteria = json.find("criteria");
  if (criteria == nullptr || criteria->object() == nullptr) {
    refuse(where + "\"criteria\" " + found(criteria) + "; an object of 1 to " +
           std::to_string(kMostOptions) + " options is needed");
  }
  const Json::Object &members = *criteria->object();
  if (members.empty() || members.size() > kMostOptions) {
    refuse(where + "\"criteria\" has " + std::to_string(members.size()) + " options; 1 to " +
           std::to_string(kMostOptions) + " are allowed");
  }
  Question question;
  question.name = name;
  for (const Json::Member &member : members) {
    std::string storage;
    const std::string *const label =
        member.value.is_null() ? &member.key : text_of(member.value, storage);
    if (label == nullptr) {
      refuse(where + "option " + quote_short(member.key) + " " + found(&member.value) +
             "; a string, an object, an array or null is needed");
    }
    question.options.push_back(member.key);
    question.labels.push_back(*label);
  }
  question.goal = *goal;
  return question;
}

}  // namespace

Request parse_request(std::string_view body) {
  const Json json = parse_json(body);
  if (json.object() == nullptr) {
    throw RequestError(
        400, std::string("the body is ") + json.type_name() + "; a JSON object is needed");
  }
  const Json *const model = json.find("model");
  if (model == nullptr || model->string() == nullptr || *model->string() != kRequestModel) {
    refuse("\"model\" " +
           (model != nullptr && model->string() != nullptr ? "is " + quote_short(*model->string())
                                                           : found(model)) +
           "; it must be \"" + std::string(kRequestModel) + "\"");
  }
  const Json *const state_json = json.find("state");
  std::string state_storage;
  const std::string *const state =
      state_json == nullptr ? nullptr : text_of(*state_json, state_storage);
  if (state == nullptr) {
    refuse("\"state\" " + found(state_json) + "; a string, an object or an array is needed");
  }
  if (empty(*state_json)) refuse("\"state\" is empty; describe the screen");

  const Json *const questions = json.find("questions");
  if (questions == nullptr || questions->object() == nullptr) {
    refuse("\"questions\" " + found(questions) + "; an object of questions is needed");
  }
  const Json::Object &members = *questions->object();
  if (members.empty()) refuse("\"questions\" is empty; ask at least one");
  if (members.size() > kMostQuestions) {
    throw RequestError(413, "\"questions\" has " + std::to_string(members.size()) +
                                " questions; at most " + std::to_string(kMostQuestions) +
                                " are allowed");
  }
  Request request;
  request.state = *state;
  for (const Json::Member &member : members) {
    request.questions.push_back(parse_question(member.key, member.value));
  }
  return request;
}

std::string prompt_of(const Request &request, const Question &question) {
  return prompt(question.goal, request.state, question.labels);
}

RequestError too_many_tokens(const Question &question, uint64_t tokens, uint64_t limit) {
  return {413, "question " + quote_short(question.name) + " has " + std::to_string(tokens) +
                   " prompt tokens; at most " + std::to_string(limit) + " are allowed"};
}

RequestError body_too_large() {
  return {413, "the body is larger than " + std::to_string(kMostBodyBytes) + " bytes"};
}

}  // namespace cua_server::decision
