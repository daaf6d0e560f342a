// SPDX-License-Identifier: Apache-2.0
#include "http/pipeline.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/string.hpp>
#include <functional>
#include <optional>
#include <utility>

#include "decision/answer.h"
#include "decision/quote.h"
#include "decision/request.h"
#include "http/message.h"
#include "telemetry/log.h"

namespace cua_server::http {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

// A worker takes requests together up to so many bytes of bodies, and up to so many bytes of
// prompts goes on to the next: some hundred microseconds of work. What is more has a turn of its
// own, and holds nobody up.
constexpr size_t kTurnBytes = 32 * 1024;
// Nor more at a time than this, so that all threads of the way have something to do at once.
constexpr size_t kTurn = 8;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string milliseconds(double seconds) {
  const auto microseconds = static_cast<uint64_t>(std::max(seconds, 0.0) * 1e6 + 0.5);
  std::string text = std::to_string(microseconds / 1000) + ".000";
  uint64_t rest = microseconds % 1000;
  for (size_t i = text.size(); rest != 0; rest /= 10)
    text[--i] = static_cast<char>('0' + rest % 10);
  return text;
}

// Some clients compress large bodies unasked: more of a 400's text, as no place in the body tells.
std::string undecoded(unsigned status, std::string_view coding) {
  if (status != 400 || coding.empty() || boost::beast::iequals(coding, "identity")) return {};
  return "; it came with Content-Encoding " + decision::quote_short(coding) +
         ", which is not decoded here: send it uncompressed";
}

}  // namespace

struct Pipeline::Ticket {
  std::string body;
  std::shared_ptr<Waiter> waiter;
  uint64_t job = 0;  // its number at the scheduler
  std::function<void()> resume;
  asio::executor_work_guard<asio::any_io_executor> sockets;  // held open until it has resumed
  Clock::time_point began = Clock::now();

  decision::Request request;
  std::vector<scheduling::Prompt> prompts;
  size_t questions = 0;
  uint64_t tokens = 0;
  double prepare_seconds = 0;
  scheduling::Result result = scheduling::Dropped::cancelled;
  scheduling::Timing timing;
  std::optional<Reply> reply;

  explicit Ticket(const asio::any_io_executor &executor) : sockets(executor) {}
};

Pipeline::Pipeline(const PipelineOptions &options, telemetry::Metrics &metrics)
    : options_(options), metrics_(metrics), workers_(options.workers) {}

Pipeline::~Pipeline() { workers_.join(); }

void Pipeline::is_ready(std::span<scheduling::Engine *const> engines,
                        scheduling::Scheduler &scheduler, std::string model_id) {
  engine_ = engines.front();
  scheduler_ = &scheduler;
  model_id_ = std::move(model_id);
}

asio::awaitable<Reply> Pipeline::decide(std::string body, std::shared_ptr<Waiter> waiter) {
  const auto executor = co_await asio::this_coro::executor;
  const auto ticket = std::make_shared<Ticket>(executor);
  ticket->body = std::move(body);
  ticket->job = scheduler_->reserve();
  ticket->waiter = waiter;
  waiter->leave = [this, job = ticket->job] {
    scheduler_->cancel(job);
    settled();
  };
  std::optional<asio::steady_timer> limit;
  if (options_.request_timeout.count() > 0) {
    limit.emplace(executor, options_.request_timeout);
    limit->async_wait([waiter](boost::system::error_code error) {
      if (!error) waiter->has_waited_too_long();
    });
  }
  const auto start = [&](auto handler) {
    // std::function asks for something to copy; the handler can only be moved.
    auto resume = std::make_shared<decltype(handler)>(std::move(handler));
    ticket->resume = [resume] { (*resume)(); };
    arrived_.push_back(ticket);
    if (arrived_.size() == 1) {  // those that come in this turn of the sockets go together
      asio::post(executor, [this] {
        if (!arrived_.empty()) send_off(std::exchange(arrived_, {}));
      });
    } else if (arrived_.size() == kTurn) {
      send_off(std::exchange(arrived_, {}));
    }
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<> &, void()>(start,
                                                                         asio::use_awaitable);
  waiter->leave = {};
  co_return std::move(*ticket->reply);
}

void Pipeline::send_off(Tickets tickets) {
  Tickets turn;
  size_t bytes = 0;
  const auto send = [&] {
    asio::post(workers_,
               [this, taken = std::exchange(turn, {})]() mutable { prepare(std::move(taken)); });
    bytes = 0;
  };
  for (std::shared_ptr<Ticket> &ticket : tickets) {
    const size_t more = ticket->body.size();
    if (!turn.empty() && bytes + more > kTurnBytes) send();
    bytes += more;
    turn.push_back(std::move(ticket));
  }
  send();
}

void Pipeline::prepare(Tickets tickets) {
  Tickets refused;
  for (const std::shared_ptr<Ticket> &ticket : tickets) {
    if (!parse(*ticket)) {
      refused.push_back(ticket);
      continue;
    }
    // A small body can ask many questions of its state, each of which is a prompt to tokenise.
    const size_t bytes = ticket->request.state.size() * ticket->questions;
    if (bytes <= kTurnBytes || tickets.size() == 1) {
      submit(ticket, refused);
    } else {
      asio::post(workers_, [this, ticket] {
        Tickets refused_alone;
        submit(ticket, refused_alone);
        scheduler_->start();
        if (!refused_alone.empty()) finish(std::move(refused_alone));
      });
    }
  }
  scheduler_->start();
  if (!refused.empty()) finish(std::move(refused));
}

// False: it is refused, or nobody waits for it any more.
bool Pipeline::parse(Ticket &ticket) const {
  const auto began = Clock::now();
  try {
    ticket.request = decision::parse_request(ticket.body, options_.accepted_models);
    ticket.body = {};
    const uint64_t questions = ticket.request.questions.size();
    if (scheduler_->admit(questions)) {
      ticket.questions = questions;
    } else {
      ticket.reply = busy("the queue is full: " + std::to_string(scheduler_->queue().questions) +
                          " questions wait already; try again later");
    }
  } catch (const decision::RequestError &error) {
    ticket.reply = error_reply(error.status(),
                               error.what() + undecoded(error.status(), ticket.waiter->coding));
  } catch (const std::exception &error) {  // out of memory
    telemetry::log(telemetry::Level::error, std::string("parsing failed: ") + error.what());
    ticket.reply = error_reply(500, "inference failed");
  }
  ticket.prepare_seconds = seconds_since(began);
  return !ticket.reply;
}

void Pipeline::tokenise(Ticket &ticket) const {
  const auto began = Clock::now();
  try {
    ticket.prompts.reserve(ticket.questions);
    for (const decision::Question &question : ticket.request.questions) {
      scheduling::Prompt prompt;
      prompt.n_options = static_cast<uint32_t>(question.options.size());
      prompt.ids = engine_->tokenize(decision::prompt_of(ticket.request, question));
      if (prompt.ids.size() > engine_->max_prompt_tokens()) {
        throw decision::too_many_tokens(question, prompt.ids.size(), engine_->max_prompt_tokens());
      }
      ticket.tokens += prompt.ids.size();
      ticket.prompts.push_back(std::move(prompt));
    }
  } catch (const decision::RequestError &error) {
    ticket.reply = error_reply(error.status(), error.what());
  } catch (const std::exception &error) {  // of the library, or out of memory
    telemetry::log(telemetry::Level::error, std::string("tokenising failed: ") + error.what());
    ticket.reply = error_reply(500, "inference failed");
  }
  ticket.prepare_seconds += seconds_since(began);
}

void Pipeline::submit(const std::shared_ptr<Ticket> &ticket, Tickets &refused) {
  const Waiter &waiter = *ticket->waiter;
  const auto nobody_waits = [&] { return waiter.gone || waiter.timed_out; };
  if (!nobody_waits()) tokenise(*ticket);
  if (ticket->reply || nobody_waits()) {
    scheduler_->release(ticket->questions);
    refused.push_back(ticket);
    return;
  }
  scheduler_->submit({std::move(ticket->prompts),
                      [this, ticket](scheduling::Result result, scheduling::Timing timing) {
                        ticket->result = std::move(result);
                        ticket->timing = timing;
                        const std::lock_guard lock(mutex_);
                        scored_.push_back(ticket);
                      },
                      ticket->job},
                     false);
  // Whoever left between the question above and now found nothing to cancel.
  if (nobody_waits()) {
    scheduler_->cancel(ticket->job);
    settled();
  }
}

void Pipeline::settled() {
  {
    const std::lock_guard lock(mutex_);
    if (scored_.empty()) return;
  }
  asio::post(workers_, [this] {
    Tickets tickets;
    {
      const std::lock_guard lock(mutex_);
      tickets.swap(scored_);
    }
    if (!tickets.empty()) finish(std::move(tickets));
  });
}

// The replies, and back to the sockets with them.
void Pipeline::finish(Tickets tickets) {
  telemetry::LogLines lines;
  Tickets done;
  for (std::shared_ptr<Ticket> &ticket : tickets) {
    if (done.size() == kTurn) send_back(std::exchange(done, {}));
    done.push_back(ticket);
    if (!ticket->reply) answer(*ticket);
    Reply &reply = *ticket->reply;
    if (reply.drop) {
      reply.status = 499;  // for the log: nobody reads it
      ++metrics_.requests[0];
    } else {
      ++metrics_.requests[std::clamp(reply.status / 100, 2u, 5u)];
      reply.headers.reserve(256);  // the session adds to it
      reply.headers += "\r\nServer-Timing: tok;dur=";
      reply.headers += milliseconds(ticket->prepare_seconds);
      reply.headers += ", queue;dur=";
      reply.headers += milliseconds(ticket->timing.queue);
      reply.headers += ", infer;dur=";
      reply.headers += milliseconds(ticket->timing.infer);
    }
    if (reply.status == 200) {
      metrics_.questions += ticket->questions;
      metrics_.prompt_tokens += ticket->tokens;
      metrics_.queue.add(ticket->timing.queue);
    }
    const double seconds = seconds_since(ticket->began);
    metrics_.prepare.add(ticket->prepare_seconds);
    metrics_.request.add(seconds);
    if (!telemetry::logs(telemetry::Level::info)) continue;
    lines.add(telemetry::Level::info, "decision",
              {{"id", ticket->waiter->id},
               {"status", std::to_string(reply.status)},
               {"questions", std::to_string(ticket->questions)},
               {"tokens", std::to_string(ticket->tokens)},
               {"tok_ms", milliseconds(ticket->prepare_seconds)},
               {"queue_ms", milliseconds(ticket->timing.queue)},
               {"infer_ms", milliseconds(ticket->timing.infer)},
               {"total_ms", milliseconds(seconds)}});
  }
  send_back(std::move(done));
}

// To the sockets.
void Pipeline::send_back(Tickets tickets) {
  if (tickets.empty()) return;
  const asio::any_io_executor sockets = tickets.front()->sockets.get_executor();
  asio::post(sockets, [tickets = std::move(tickets)] {
    for (const std::shared_ptr<Ticket> &ticket : tickets) {
      try {
        std::exchange(ticket->resume, {})();
      } catch (const std::exception &error) {  // of one connection; the others go on
        telemetry::log(telemetry::Level::error,
                       std::string("a connection failed: ") + error.what());
      }
    }
  });
}

// What the scores of a request come to.
void Pipeline::answer(Ticket &ticket) const {
  if (std::holds_alternative<scheduling::Dropped>(ticket.result)) {
    if (ticket.waiter->timed_out && !ticket.waiter->gone) {
      ticket.reply =
          busy("the request waited longer than " +
               std::to_string(options_.request_timeout.count()) + " ms; try again later");
    } else {
      ticket.reply.emplace().drop = true;
    }
    return;
  }
  const auto *const scores = std::get_if<std::vector<cua_score>>(&ticket.result);
  if (scores == nullptr) {  // the scheduler has told why
    ticket.reply = error_reply(500, "inference failed");
    return;
  }
  try {
    std::vector<decision::Score> answers;
    answers.reserve(scores->size());
    for (size_t i = 0; i < scores->size(); ++i) {
      const cua_score &score = (*scores)[i];
      const decision::Question &question = ticket.request.questions[i];
      answers.push_back({{score.probabilities, question.options.size()}, score.best, score.n_ids});
      if (!decision::is_usable(question, answers.back())) {
        throw std::runtime_error("the library returned a score that is not one");
      }
    }
    ticket.reply = json_reply(200, decision::answer_json(model_id_, ticket.request, answers));
  } catch (const std::exception &error) {  // or out of memory
    telemetry::log(telemetry::Level::error, std::string("no answer: ") + error.what());
    ticket.reply = error_reply(500, "inference failed");
  }
}

// By what waits and how fast it goes.
Reply Pipeline::busy(std::string_view why) const {
  double seconds = 1;
  if (scheduler_ != nullptr) {
    const scheduling::QueueState queue = scheduler_->queue();
    if (queue.questions_per_second > 0) {
      seconds = static_cast<double>(queue.questions) / queue.questions_per_second;
    }
  }
  Reply reply = error_reply(503, why);
  reply.headers = retry_headers(
      std::chrono::milliseconds(static_cast<int64_t>(std::clamp(seconds * 1e3, 1.0, 600e3))));
  return reply;
}

}  // namespace cua_server::http
