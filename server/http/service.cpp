// SPDX-License-Identifier: Apache-2.0
#include "http/service.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>

#include "decision/answer.h"
#include "telemetry/log.h"

namespace cua_server::http {
namespace {

namespace asio = boost::asio;

// The pinned id of the real weights; a model folder may name its own.
constexpr std::string_view kModelId =
    "cua-ai/cua-s1-4b-0.2@16818868b0cc7813808aae4e87b417657046ab79:text";

// Bodies up to this size are parsed and tokenised where they were read: that takes less than a
// millisecond, and handing them to another thread would cost more than it saves.
constexpr size_t kInlineBytes = 16 * 1024;

// Target to path: without the query, and without the scheme and authority of the absolute form.
std::string_view path_of(std::string_view target) {
  target = target.substr(0, target.find('?'));
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.substr(0, scheme.size()) == scheme) {
      const size_t slash = target.find('/', scheme.size());
      return slash == target.npos ? "/" : target.substr(slash);
    }
  }
  return target;
}

}  // namespace

struct Service::Decision {
  std::optional<Reply> refusal;
  decision::Request request;
  std::vector<scheduling::Prompt> prompts;
};

Reply error_reply(unsigned status, std::string_view detail) {
  return {status, decision::error_json(detail), {}};
}

Service::Service(scheduling::Engine &engine, scheduling::Scheduler &scheduler)
    : engine_(engine),
      scheduler_(scheduler),
      model_id_(engine.model().value_or(std::string(kModelId))) {}

Reply Service::health() const {
  const auto text = [](std::string_view value) {
    // error_json's escaping, without its key
    const std::string json = decision::error_json(value);
    const size_t colon = json.find(':') + 1;
    return json.substr(colon, json.size() - colon - 1);
  };
  if (const auto failure = scheduler_.device_failure()) {
    return {503, "{\"status\":\"failed\",\"reason\":" + text(*failure) + "}", {}};
  }
  if (draining_) return {503, "{\"status\":\"draining\"}", {}};
  return {200, "{\"status\":\"ready\",\"model\":" + text(model_id_) + "}", {}};
}

std::optional<Reply> Service::route(std::string_view method, std::string_view target) const {
  const std::string_view path = path_of(target);
  const bool is_health = path == "/health", is_decision = path == "/v1/systemone";
  if (!is_health && !is_decision) {
    return error_reply(404, "not found: the paths are /v1/systemone and /health");
  }
  const std::string_view allowed = is_health ? "GET" : "POST";
  if (method != allowed) {
    Reply reply = error_reply(405, "method not allowed: use " + std::string(allowed));
    reply.allow = allowed;
    return reply;
  }
  if (is_health) return health();
  return std::nullopt;
}

Service::Decision Service::prepare(std::string_view body) const {
  Decision decision;
  try {
    decision.request = decision::parse_request(body);
    for (const decision::Question &question : decision.request.questions) {
      scheduling::Prompt prompt;
      prompt.n_options = static_cast<uint32_t>(question.options.size());
      prompt.ids = engine_.tokenize(decision::prompt_of(decision.request, question));
      if (prompt.ids.size() > engine_.max_prompt_tokens()) {
        throw decision::too_many_tokens(question, prompt.ids.size(), engine_.max_prompt_tokens());
      }
      decision.prompts.push_back(std::move(prompt));
    }
  } catch (const decision::RequestError &error) {
    decision.refusal = error_reply(error.status(), error.what());
  } catch (const std::exception &error) {  // of the library, or out of memory
    telemetry::log(telemetry::Level::error, std::string("tokenising failed: ") + error.what());
    decision.refusal = error_reply(500, "inference failed");
  }
  return decision;
}

asio::awaitable<scheduling::Result> Service::score(std::vector<scheduling::Prompt> prompts) {
  const auto executor = co_await asio::this_coro::executor;
  const auto start = [&](auto handler) {
    // std::function asks for something to copy; the handler can only be moved.
    auto resume = std::make_shared<decltype(handler)>(std::move(handler));
    auto work = asio::make_work_guard(executor);
    scheduler_.submit({std::move(prompts), [resume, executor, work](scheduling::Result result) {
                         asio::post(executor, [resume, result = std::move(result)]() mutable {
                           (*resume)(std::move(result));
                         });
                       }});
  };
  co_return co_await asio::async_initiate<const asio::use_awaitable_t<> &,
                                          void(scheduling::Result)>(start, asio::use_awaitable);
}

asio::awaitable<Reply> Service::decide(std::string body) {
  Decision decision;
  if (body.size() <= kInlineBytes) {
    decision = prepare(body);
  } else {
    decision = co_await asio::co_spawn(
        workers_, [&]() -> asio::awaitable<Decision> { co_return prepare(body); },
        asio::use_awaitable);
  }
  if (decision.refusal) co_return std::move(*decision.refusal);
  body = {};

  const scheduling::Result result = co_await score(std::move(decision.prompts));
  const auto *const scores = std::get_if<std::vector<cua_score>>(&result);
  if (scores == nullptr) co_return error_reply(500, "inference failed");
  std::vector<decision::Score> answers;
  for (size_t i = 0; i < scores->size(); ++i) {
    const cua_score &score = (*scores)[i];
    const decision::Question &question = decision.request.questions[i];
    answers.push_back({{score.probabilities, question.options.size()}, score.best, score.n_ids});
    if (!decision::is_usable(question, answers.back())) {
      telemetry::log(telemetry::Level::error, "the library returned a score that is not one");
      co_return error_reply(500, "inference failed");
    }
  }
  co_return Reply{200, decision::answer_json(model_id_, decision.request, answers), {}};
}

}  // namespace cua_server::http
