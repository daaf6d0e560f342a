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

// A JSON string, by error_json's escaping.
std::string json_text(std::string_view value) {
  const std::string json = decision::error_json(value);
  const size_t colon = json.find(':') + 1;
  return json.substr(colon, json.size() - colon - 1);
}

std::string milliseconds(double seconds) {
  const auto microseconds = static_cast<uint64_t>(std::max(seconds, 0.0) * 1e6 + 0.5);
  std::string text = std::to_string(microseconds / 1000) + ".000";
  uint64_t rest = microseconds % 1000;
  for (size_t i = text.size(); rest != 0; rest /= 10)
    text[--i] = static_cast<char>('0' + rest % 10);
  return text;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
  bool tokenised = false;
  uint64_t admitted = 0;  // questions that hold room in the queue
  double seconds = 0;     // that it took
};

struct Service::Scored {
  scheduling::Result result;
  scheduling::Timing timing;
};

Reply error_reply(unsigned status, std::string_view detail) {
  return json_reply(status, decision::error_json(detail));
}

Service::Service(const ServiceOptions &options) : options_(options), workers_(options.workers) {}

Service::~Service() { workers_.join(); }

void Service::is_ready(std::span<scheduling::Engine *const> engines,
                       scheduling::Scheduler &scheduler) {
  engines_.assign(engines.begin(), engines.end());
  scheduler_ = &scheduler;
  model_id_ = engines_.front()->model().value_or(std::string(kModelId));
}

void Service::observe(const scheduling::PassReport &pass) {
  metrics_.forward.add(pass.seconds);
  metrics_.batch_prompts.add(static_cast<double>(pass.prompts));
  metrics_.batch_tokens.add(static_cast<double>(pass.tokens));
}

// Every key is compared whole, so that the time tells nothing of how far one fits.
bool Service::may_enter(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return false;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != kScheme[i]) return false;
  }
  const std::string_view given = authorization.substr(kScheme.size());
  bool found = false;
  for (const std::string &key : options_.api_keys) {
    unsigned different = given.size() == key.size() ? 0 : 1;
    for (size_t i = 0; i < key.size(); ++i) {
      different |= static_cast<unsigned char>(key[i] ^ (i < given.size() ? given[i] : '\0'));
    }
    found |= different == 0;
  }
  return found;
}

// Once for all requests that have come together.
void Service::start_soon(const asio::any_io_executor &executor) {
  if (std::exchange(starts_soon_, true)) return;
  asio::post(executor, [this] {
    starts_soon_ = false;
    scheduler_->start();
  });
}

bool Service::is_worth_watching() const {
  constexpr double kSoon = 2e-3;  // seconds
  const scheduling::QueueState queue = scheduler_->queue();
  return static_cast<double>(queue.questions + 1) > kSoon * queue.questions_per_second;
}

Reply Service::metrics() const {
  telemetry::Gauges gauges;
  gauges.version = options_.version;
  gauges.model = model_id_;
  if (scheduler_ != nullptr) {
    const scheduling::QueueState queue = scheduler_->queue();
    gauges.queue_questions = queue.questions;
    gauges.queue_tokens = queue.tokens;
    gauges.ready = !draining_ && !scheduler_->device_failure();
  }
  for (const scheduling::Engine *engine : engines_) {
    const cua_stats stats = engine->stats();
    gauges.forwards += stats.forwards;
    gauges.captures += stats.captures;
    gauges.replays += stats.replays;
    gauges.fallbacks += stats.fallbacks;
    gauges.device_bytes += stats.device_bytes;
    gauges.scratch_bytes += stats.scratch_bytes;
    gauges.device += (gauges.device.empty() ? "" : "; ") + engine->device();
  }
  Reply reply = json_reply(200, telemetry::metrics_text(metrics_, gauges));
  reply.type = telemetry::kMetricsType;
  return reply;
}

// The lists that clients of two kinds of services ask for, in one object.
Reply Service::models() const {
  std::string named, listed;
  std::vector<std::string> names{std::string(decision::kRequestModel)};
  names.insert(names.end(), options_.accepted_models.begin(), options_.accepted_models.end());
  for (const std::string &name : names) {
    const std::string text = json_text(name);
    named += (named.empty() ? "{\"name\":" : ",{\"name\":") + text + ",\"description\":" +
             json_text("Closed-choice decisions for computer use, " +
                       (model_id_.empty() ? "loading" : model_id_)) +
             ",\"release_date\":\"2025-11-01\"}";
    listed += (listed.empty() ? "{\"id\":" : ",{\"id\":") + text +
              ",\"object\":\"model\",\"created\":1761955200,\"owned_by\":\"cua-ai\"}";
  }
  return json_reply(200,
                    "{\"models\":[" + named + "],\"data\":[" + listed + "],\"object\":\"list\"}");
}

// /health and /readyz: whether a decision would be made. /livez: whether a restart would not help.
Reply Service::health(std::string_view path) const {
  if (scheduler_ != nullptr) {
    if (const auto failure = scheduler_->device_failure()) {
      return json_reply(503, "{\"status\":\"failed\",\"reason\":" + json_text(*failure) + "}");
    }
  }
  if (path == "/livez") return json_reply(200, "{\"status\":\"alive\"}");
  if (draining_) return json_reply(503, "{\"status\":\"draining\"}");
  if (scheduler_ == nullptr) return json_reply(503, "{\"status\":\"loading\"}");
  return json_reply(200, "{\"status\":\"ready\",\"model\":" + json_text(model_id_) + "}");
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

std::optional<Reply> Service::route(std::string_view method, std::string_view target,
                                    std::string_view authorization) const {
  const std::string_view path = path_of(target);
  const bool is_health = path == "/health" || path == "/livez" || path == "/readyz";
  const bool is_metrics = path == "/metrics", is_models = path == "/v1/models";
  if (!is_health && !is_metrics && !is_models && path != "/v1/systemone") {
    return error_reply(404, "not found: the paths are /v1/systemone and /health");
  }
  const std::string_view allowed = path == "/v1/systemone" ? "POST" : "GET";
  if (method != allowed) {
    Reply reply = error_reply(405, "method not allowed: use " + std::string(allowed));
    reply.allow = allowed;
    return reply;
  }
  const bool open = is_health || (is_metrics && !options_.protect_metrics);
  if (!open && !options_.api_keys.empty() && !may_enter(authorization)) {
    Reply reply = error_reply(401,
                              "not authorized: an Authorization header with a valid Bearer key "
                              "is needed");
    reply.headers = "\r\nWWW-Authenticate: Bearer";
    return reply;
  }
  if (is_health) return health(path);
  if (is_metrics) return metrics();
  if (is_models) return models();
  if (scheduler_ == nullptr) return busy("the model is loading");
  return std::nullopt;
}

Service::Decision Service::prepare(std::string_view body) const {
  const auto began = std::chrono::steady_clock::now();
  Decision decision;
  try {
    decision.request = decision::parse_request(body, options_.accepted_models);
    const uint64_t questions = decision.request.questions.size();
    if (!scheduler_->admit(questions)) {
      decision.refusal =
          busy("the queue is full: " + std::to_string(scheduler_->queue().questions) +
               " questions wait already; try again later");
      return decision;
    }
    decision.admitted = questions;
  } catch (const decision::RequestError &error) {
    decision.refusal = error_reply(error.status(), error.what());
  } catch (const std::exception &error) {  // out of memory
    telemetry::log(telemetry::Level::error, std::string("parsing failed: ") + error.what());
    decision.refusal = error_reply(500, "inference failed");
  }
  decision.seconds = seconds_since(began);
  // A small body can ask many questions of its state, each of which is a prompt to tokenise.
  const size_t bytes = decision.request.state.size() * decision.request.questions.size();
  if (!decision.refusal && (body.size() > kInlineBytes || bytes <= kInlineBytes)) {
    tokenise(decision);
  }
  return decision;
}

void Service::tokenise(Decision &decision) const {
  const auto began = std::chrono::steady_clock::now();
  decision.tokenised = true;
  try {
    for (const decision::Question &question : decision.request.questions) {
      scheduling::Prompt prompt;
      prompt.n_options = static_cast<uint32_t>(question.options.size());
      prompt.ids = engines_.front()->tokenize(decision::prompt_of(decision.request, question));
      if (prompt.ids.size() > engines_.front()->max_prompt_tokens()) {
        throw decision::too_many_tokens(question, prompt.ids.size(),
                                        engines_.front()->max_prompt_tokens());
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
  decision.seconds += seconds_since(began);
}

auto Service::score(std::vector<scheduling::Prompt> prompts, std::shared_ptr<Waiter> waiter)
    -> asio::awaitable<Scored> {
  const auto executor = co_await asio::this_coro::executor;
  std::optional<asio::steady_timer> limit;
  const auto start = [&](auto handler) {
    // std::function asks for something to copy; the handler can only be moved.
    auto resume = std::make_shared<decltype(handler)>(std::move(handler));
    auto work = asio::make_work_guard(executor);
    const uint64_t id = scheduler_->submit(
        {std::move(prompts),
         [resume, executor, work](scheduling::Result result, scheduling::Timing timing) {
           asio::post(executor, [resume, scored = Scored{std::move(result), timing}]() mutable {
             (*resume)(std::move(scored));
           });
         }},
        false);
    start_soon(executor);
    waiter->leave = [scheduler = scheduler_, id] { scheduler->cancel(id); };
    if (options_.request_timeout.count() > 0) {
      limit.emplace(executor, options_.request_timeout);
      limit->async_wait([waiter](boost::system::error_code error) {
        if (error || !waiter->leave) return;
        waiter->timed_out = true;
        waiter->leave();
      });
    }
  };
  Scored scored = co_await asio::async_initiate<const asio::use_awaitable_t<> &, void(Scored)>(
      start, asio::use_awaitable);
  waiter->leave = {};
  co_return scored;
}

asio::awaitable<Reply> Service::decide(std::string body, std::shared_ptr<Waiter> waiter) {
  const auto began = std::chrono::steady_clock::now();
  Decision decision;
  if (body.size() <= kInlineBytes) {
    decision = prepare(body);
  } else {
    decision = co_await on_pool(workers_, [this, &body]() -> Decision { return prepare(body); });
  }
  if (!decision.refusal && !decision.tokenised) {
    co_await on_pool(workers_, [this, &decision]() -> bool {
      tokenise(decision);
      return true;
    });
  }
  body = {};
  metrics_.prepare.add(decision.seconds);
  const size_t questions = decision.prompts.size();
  uint64_t tokens = 0;
  for (const scheduling::Prompt &prompt : decision.prompts) tokens += prompt.ids.size();
  scheduling::Timing timing;
  Reply reply;
  if (decision.refusal) {
    reply = std::move(*decision.refusal);
  } else if (waiter->gone) {
    scheduler_->release(decision.admitted);
    reply.drop = true;
  } else {
    Scored scored = co_await score(std::move(decision.prompts), waiter);
    timing = scored.timing;
    reply = answer(decision, scored.result, *waiter);
  }

  if (reply.drop) {
    reply.status = 499;  // for the log: nobody reads it
    ++metrics_.requests[0];
  } else {
    ++metrics_.requests[std::clamp(reply.status / 100, 2u, 5u)];
    reply.headers += "\r\nServer-Timing: tok;dur=" + milliseconds(decision.seconds) +
                     ", queue;dur=" + milliseconds(timing.queue) +
                     ", infer;dur=" + milliseconds(timing.infer);
  }
  if (reply.status == 200) {
    metrics_.questions += questions;
    metrics_.prompt_tokens += tokens;
    metrics_.queue.add(timing.queue);
  }
  const double seconds = seconds_since(began);
  metrics_.request.add(seconds);
  if (telemetry::logs(telemetry::Level::debug)) {
    telemetry::log(telemetry::Level::debug, "decision",
                   {{"id", waiter->id},
                    {"status", std::to_string(reply.status)},
                    {"questions", std::to_string(questions)},
                    {"tokens", std::to_string(tokens)},
                    {"tok_ms", milliseconds(decision.seconds)},
                    {"queue_ms", milliseconds(timing.queue)},
                    {"infer_ms", milliseconds(timing.infer)},
                    {"total_ms", milliseconds(seconds)}});
  }
  co_return reply;
}

// What the scores of a request come to.
Reply Service::answer(const Decision &decision, const scheduling::Result &result,
                      const Waiter &waiter) const {
  if (std::holds_alternative<scheduling::Dropped>(result)) {
    if (waiter.timed_out && !waiter.gone) {
      return busy("the request waited longer than " +
                  std::to_string(options_.request_timeout.count()) + " ms; try again later");
    }
    Reply nobody;
    nobody.drop = true;
    return nobody;
  }
  const auto *const scores = std::get_if<std::vector<cua_score>>(&result);
  if (scores == nullptr) return error_reply(500, "inference failed");
  std::vector<decision::Score> answers;
  for (size_t i = 0; i < scores->size(); ++i) {
    const cua_score &score = (*scores)[i];
    const decision::Question &question = decision.request.questions[i];
    answers.push_back({{score.probabilities, question.options.size()}, score.best, score.n_ids});
    if (!decision::is_usable(question, answers.back())) {
      telemetry::log(telemetry::Level::error, "the library returned a score that is not one");
      return error_reply(500, "inference failed");
    }
  }
  return json_reply(200, decision::answer_json(model_id_, decision.request, answers));
}

}  // namespace cua_server::http
