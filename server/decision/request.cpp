// SPDX-License-Identifier: Apache-2.0
#include "decision/request.h"

#include <algorithm>
#include <optional>
#include <utility>

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

bool is(const Json *value, Json::Type type) { return value != nullptr && value->is(type); }

// A string as it is; an object or array as Python writes it; nothing for other types.
std::optional<std::string> text_of(const Json *value) {
  if (is(value, Json::Type::kString)) return std::string(value->text());
  if (is(value, Json::Type::kObject) || is(value, Json::Type::kArray)) return python_json(*value);
  return std::nullopt;
}

Question parse_question(std::string_view name, const Json &json) {
  const auto refuse = [&](const std::string &detail) {
    decision::refuse("question " + quote_short(name) + ": " + detail);
  };
  if (!json.is(Json::Type::kObject)) refuse(found(&json) + "; an object is needed");

  const Json *const type = json.find("type");
  if (!is(type, Json::Type::kString)) {
    refuse("unknown type: \"type\" " + found(type) + "; \"choice\" is needed");
  }
  if (type->text() == "score" || type->text() == "noul") {
    refuse("the type " + quote_short(type->text()) + " is not supported; only \"choice\" is");
  }
  if (type->text() != "choice") {
    refuse("unknown type " + quote_short(type->text()) + "; \"choice\" is needed");
  }

  Question question;
  question.name = name;
  const Json *const instructions = json.find("instructions");
  if (auto goal = text_of(instructions)) {
    question.goal = *std::move(goal);
  } else if (!is(instructions, Json::Type::kNull)) {
    refuse("\"instructions\" " + found(instructions) +
           "; a string, an object, an array or null is needed");
  }

  const Json *const criteria = json.find("criteria");
  if (!is(criteria, Json::Type::kObject)) {
    refuse("\"criteria\" " + found(criteria) + "; an object of 1 to " +
           std::to_string(kMostOptions) + " options is needed");
  }
  if (criteria->size() < 1 || criteria->size() > kMostOptions) {
    refuse("\"criteria\" has " + std::to_string(criteria->size()) + " options; 1 to " +
           std::to_string(kMostOptions) + " are allowed");
  }
  question.options.reserve(criteria->size());
  question.labels.reserve(criteria->size());
  const Json *key = criteria->first();
  for (size_t i = 0; i < criteria->size(); ++i, key = key->next()->next()) {
    const Json *const value = key->next();
    auto label = text_of(value->is(Json::Type::kNull) ? key : value);
    if (!label) {
      refuse("option " + quote_short(key->text()) + " " + found(value) +
             "; a string, an object, an array or null is needed");
    }
    question.options.emplace_back(key->text());
    question.labels.push_back(*std::move(label));
  }
  return question;
}

}  // namespace

Request parse_request(std::string_view body, const std::vector<std::string> &accepted) {
  const JsonDocument document = parse_json(body);
  const Json &json = document.root();
  if (!json.is(Json::Type::kObject)) {
    throw RequestError(
        400, std::string("the body is ") + json.type_name() + "; a JSON object is needed");
  }
  const Json *const model = json.find("model");
  if (!is(model, Json::Type::kString) ||
      (model->text() != kRequestModel &&
       std::find(accepted.begin(), accepted.end(), model->text()) == accepted.end())) {
    refuse("\"model\" " +
           (is(model, Json::Type::kString) ? "is " + quote_short(model->text()) : found(model)) +
           "; it must be \"" + std::string(kRequestModel) + "\"");
  }
  const Json *const state = json.find("state");
  Request request;
  if (auto text = text_of(state)) {
    if ((state->is(Json::Type::kString) ? state->text().size() : state->size()) == 0) {
      refuse("\"state\" is empty; describe the screen");
    }
    request.state = *std::move(text);
  } else {
    refuse("\"state\" " + found(state) + "; a string, an object or an array is needed");
  }

  const Json *const questions = json.find("questions");
  if (!is(questions, Json::Type::kObject)) {
    refuse("\"questions\" " + found(questions) + "; an object of questions is needed");
  }
  if (questions->size() == 0) refuse("\"questions\" is empty; ask at least one");
  if (questions->size() > kMostQuestions) {
    throw RequestError(413, "\"questions\" has " + std::to_string(questions->size()) +
                                " questions; at most " + std::to_string(kMostQuestions) +
                                " are allowed");
  }
  request.questions.reserve(questions->size());
  const Json *name = questions->first();
  for (size_t i = 0; i < questions->size(); ++i, name = name->next()->next()) {
    request.questions.push_back(parse_question(name->text(), *name->next()));
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
