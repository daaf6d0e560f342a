// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "http/reply.h"
#include "http/waiter.h"
#include "scheduling/engine.h"
#include "scheduling/scheduler.h"
#include "telemetry/metrics.h"

namespace cua_server::http {

struct PipelineOptions {
  std::chrono::milliseconds request_timeout{};  // that a decision may wait; 0: for ever
  size_t workers = 1;                           // threads that parse, tokenise and write answers
  std::vector<std::string> accepted_models;     // names beside the contract's own
};

// The way of a decision: the sockets' thread -> a worker (JSON, admission, tokens) -> the scheduler
// -> a worker (the answer's JSON, metrics, log) -> the sockets' thread. Each hand-over carries all
// that is there at the time, so that a busy server wakes a thread once for many requests.
class Pipeline {
 public:
  Pipeline(const PipelineOptions &options, telemetry::Metrics &metrics);
  ~Pipeline();  // none is on its way any more

  // From then on there are decisions. Both must outlive the pipeline's use; the scheduler's
  // `settled` is to call settled().
  void is_ready(std::span<scheduling::Engine *const> engines, scheduling::Scheduler &scheduler,
                std::string model_id);
  // The reply to a body of POST /v1/systemone. On the sockets' thread.
  boost::asio::awaitable<Reply> decide(std::string body, std::shared_ptr<Waiter> waiter);
  // Results were handed out. Any thread.
  void settled();
  // The reply to whoever finds no room, with when to come again.
  Reply busy(std::string_view why) const;

 private:
  struct Ticket;  // a request on its way
  using Tickets = std::vector<std::shared_ptr<Ticket>>;

  void send_off(Tickets tickets);
  void prepare(Tickets tickets);
  bool parse(Ticket &ticket) const;
  void submit(const std::shared_ptr<Ticket> &ticket, Tickets &refused);
  void tokenise(Ticket &ticket) const;
  void finish(Tickets tickets);
  void send_back(Tickets tickets);
  void answer(Ticket &ticket) const;

  PipelineOptions options_;
  telemetry::Metrics &metrics_;
  scheduling::Engine *engine_ = nullptr;  // that tokenises
  scheduling::Scheduler *scheduler_ = nullptr;
  std::string model_id_;
  Tickets arrived_;  // on the sockets' thread, and soon sent off
  std::mutex mutex_;
  Tickets scored_;  // guarded by the mutex, and soon finished
  boost::asio::thread_pool workers_;
};

}  // namespace cua_server::http
