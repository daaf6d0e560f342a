// SPDX-License-Identifier: Apache-2.0
#include "http/service.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <type_traits>
#include <utility>

#include "decision/answer.h"
#include "telemetry/log.h"

namespace cua_server::http {
namespace {

namespace asio = boost::asio;

// The pinned id of the real weights; a model folder may name its own.
constexpr std::string_view kModelId =
    "cua-ai/cua-s1-4b-0.2@16818868b0cc7813808aae4e87b417657046ab79:text";

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

// Runs on a thread of the pool what `run` returns, and comes back.
template <class Run>
asio::awaitable<std::invoke_result_t<Run>> on_pool(asio::thread_pool &pool, Run run) {
  using Value = std::invoke_result_t<Run>;
  const auto executor = co_await asio::this_coro::executor;
  const auto start = [&](auto handler) {
    auto resume = std::make_shared<decltype(handler)>(std::move(handler));
    auto work = asio::make_work_guard(executor);
    asio::post(pool, [resume, executor, work, &run] {
      asio::post(executor, [resume, value = run()]() mutable { (*resume)(std::move(value)); });
    });
  };
  co_return co_await asio::async_initiate<const asio::use_awaitable_t<> &, void(Value)>(
      start, asio::use_awaitable);
}

Reply json_reply(unsigned status, std::string body) {
  Reply reply;
  reply.status = status;
  reply.body = std::move(body);
  return reply;
}

}  // namespace

struct Service::Decision {
  std::optional<Reply> refusal;
  decision::Request request;
  std::vector<scheduling::Prompt> prompts;
  uint64_t admitted = 0;  // questions that hold room in the queue
};

Reply error_reply(unsigned status, std::string_view detail) {
  return json_reply(status, decision::error_json(detail));
}

Service::Service(const ServiceOptions &options) : options_(options), workers_(options.workers) {}

Service::~Service() { workers_.join(); }

void Service::is_ready(scheduling::Engine &engine, scheduling::Scheduler &scheduler) {
  engine_ = &engine;
  scheduler_ = &scheduler;
  model_id_ = engine.model().value_or(std::string(kModelId));
}

// /health and /readyz: whether a decision would be made. /livez: whether a restart would not help.
Reply Service::health(std::string_view path) const {
  const auto text = [](std::string_view value) {
    // error_json's escaping, without its key
    const std::string json = decision::error_json(value);
    const size_t colon = json.find(':') + 1;
    return json.substr(colon, json.size() - colon - 1);
  };
  if (scheduler_ != nullptr) {
    if (const auto failure = scheduler_->device_failure()) {
      return json_reply(503, "{\"status\":\"failed\",\"reason\":" + text(*failure) + "}");
    }
  }
  if (path == "/livez") return json_reply(200, "{\"status\":\"alive\"}");
  if (draining_) return json_reply(503, "{\"status\":\"draining\"}");
  if (scheduler_ == nullptr) return json_reply(503, "{\"status\":\"loading\"}");
  return json_reply(200, "{\"status\":\"ready\",\"model\":" + text(model_id_) + "}");
}

// Tells when to come again, by what waits and how fast it goes.
Reply Service::busy(std::string_view why) const {
  double seconds = 1;
  if (scheduler_ != nullptr) {
    const scheduling::QueueState queue = scheduler_->queue();
    if (queue.questions_per_second > 0) {
      seconds = static_cast<double>(queue.questions) / queue.questions_per_second;
    }
  }
  const auto milliseconds = static_cast<uint64_t>(std::clamp(seconds * 1e3, 1.0, 600e3));
  Reply reply = error_reply(503, why);
  reply.headers = "\r\nRetry-After: " + std::to_string((milliseconds + 999) / 1000) +
                  "\r\nretry-after-ms: " + std::to_string(milliseconds);
  return reply;
}

std::optional<Reply> Service::route(std::string_view method, std::string_view target) const {
  const std::string_view path = path_of(target);
  const bool is_health = path == "/health" || path == "/livez" || path == "/readyz";
  if (!is_health && path != "/v1/systemone") {
    return error_reply(404, "not found: the paths are /v1/systemone and /health");
  }
  const std::string_view allowed = is_health ? "GET" : "POST";
  if (method != allowed) {
    Reply reply = error_reply(405, "method not allowed: use " + std::string(allowed));
    reply.allow = allowed;
    return reply;
  }
  if (is_health) return health(path);
  if (scheduler_ == nullptr) return busy("the model is loading");
  return std::nullopt;
}

Service::Decision Service::prepare(std::string_view body) const {
  Decision decision;
  try {
    decision.request = decision::parse_request(body);
    const uint64_t questions = decision.request.questions.size();
    if (!scheduler_->admit(questions)) {
      decision.refusal =
          busy("the queue is full: " + std::to_string(scheduler_->queue().questions) +
               " questions wait already; try again later");
      return decision;
    }
    decision.admitted = questions;
    for (const decision::Question &question : decision.request.questions) {
      scheduling::Prompt prompt;
      prompt.n_options = static_cast<uint32_t>(question.options.size());
      prompt.ids = engine_->tokenize(decision::prompt_of(decision.request, question));
      if (prompt.ids.size() > engine_->max_prompt_tokens()) {
        throw decision::too_many_tokens(question, prompt.ids.size(), engine_->max_prompt_tokens());
      }
      decision.prompts.push_back(std::move(prompt));
    }
  } catch (const decision::RequestError &error) {
    decision.refusal = error_reply(error.status(), error.what());
  } catch (const std::exception &error) {  // of the library, or out of memory
    telemetry::log(telemetry::Level::error, std::string("tokenising failed: ") + error.what());
    decision.refusal = error_reply(500, "inference failed");
  }
  if (decision.refusal && decision.admitted != 0) {
    scheduler_->release(std::exchange(decision.admitted, 0));
  }
  return decision;
}

asio::awaitable<scheduling::Result> Service::score(std::vector<scheduling::Prompt> prompts,
                                                   std::shared_ptr<Waiter> waiter) {
  const auto executor = co_await asio::this_coro::executor;
  asio::steady_timer limit(executor);
  const auto start = [&](auto handler) {
    // std::function asks for something to copy; the handler can only be moved.
    auto resume = std::make_shared<decltype(handler)>(std::move(handler));
    auto work = asio::make_work_guard(executor);
    const uint64_t id = scheduler_->submit(
        {std::move(prompts), [resume, executor, work](scheduling::Result result) {
           asio::post(executor, [resume, result = std::move(result)]() mutable {
             (*resume)(std::move(result));
           });
         }});
    waiter->leave = [scheduler = scheduler_, id] { scheduler->cancel(id); };
    if (options_.request_timeout.count() > 0) {
      limit.expires_after(options_.request_timeout);
      limit.async_wait([waiter](boost::system::error_code error) {
        if (error || !waiter->leave) return;
        waiter->timed_out = true;
        waiter->leave();
      });
    }
  };
  scheduling::Result result =
      co_await asio::async_initiate<const asio::use_awaitable_t<> &, void(scheduling::Result)>(
          start, asio::use_awaitable);
  waiter->leave = {};
  co_return result;
}

asio::awaitable<Reply> Service::decide(std::string body, std::shared_ptr<Waiter> waiter) {
  Decision decision =
      co_await on_pool(workers_, [this, &body]() -> Decision { return prepare(body); });
  if (decision.refusal) co_return std::move(*decision.refusal);
  body = {};
  if (waiter->gone) {
    scheduler_->release(decision.admitted);
    Reply nobody;
    nobody.drop = true;
    co_return nobody;
  }
  const scheduling::Result result = co_await score(std::move(decision.prompts), waiter);
  if (std::holds_alternative<scheduling::Dropped>(result)) {
    if (waiter->timed_out && !waiter->gone) {
      co_return busy("the request waited longer than " +
                     std::to_string(options_.request_timeout.count()) + " ms; try again later");
    }
    Reply nobody;
    nobody.drop = true;
    co_return nobody;
  }
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
  co_return json_reply(200, decision::answer_json(model_id_, decision.request, answers));
}

}  // namespace cua_server::http
