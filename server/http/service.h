// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "decision/request.h"
#include "http/reply.h"
#include "http/waiter.h"
#include "scheduling/engine.h"
#include "scheduling/scheduler.h"
#include "telemetry/metrics.h"

namespace cua_server::http {

struct ServiceOptions {
  std::chrono::milliseconds request_timeout{};  // that a decision may wait; 0: for ever
  size_t workers = 1;                           // threads that parse and tokenise
  std::vector<std::string> accepted_models;     // names beside the contract's own
  std::vector<std::string> api_keys;            // any of them opens; none: all is open
  bool protect_metrics = false;                 // with them too
  std::string version;
};

// What the worker answers, apart from how HTTP carries it. Lives on the thread of the sockets.
class Service {
 public:
  explicit Service(const ServiceOptions &options);
  ~Service();

  // From then on there are decisions. Both must outlive the service's use.
  void is_ready(std::span<scheduling::Engine *const> engines, scheduling::Scheduler &scheduler);
  // What a scheduler tells of its passes. Any thread.
  void observe(const scheduling::PassReport &pass);

  // The reply to a request that its head alone decides: an unknown path, a wrong method, /health.
  // nullopt: the body is needed, for decide().
  // authorization: that header, or empty.
  std::optional<Reply> route(std::string_view method, std::string_view target,
                             std::string_view authorization = {}) const;
  // POST /v1/systemone. Never throws.
  boost::asio::awaitable<Reply> decide(std::string body, std::shared_ptr<Waiter> waiter);

  // Whether a decision takes long enough for its client to be gone before it.
  bool is_worth_watching() const;

  void start_draining() { draining_ = true; }
  const std::string &model_id() const { return model_id_; }

 private:
  struct Decision;  // a request on its way: checked and tokenised
  // Parses and, where that is soon done or this is a thread of the pool, tokenises.
  Decision prepare(std::string_view body) const;
  void tokenise(Decision &decision) const;
  struct Scored;
  boost::asio::awaitable<Scored> score(std::vector<scheduling::Prompt> prompts,
                                       std::shared_ptr<Waiter> waiter);
  void start_soon(const boost::asio::any_io_executor &executor);
  bool may_enter(std::string_view authorization) const;
  Reply answer(const Decision &decision, const scheduling::Result &result,
               const Waiter &waiter) const;
  Reply metrics() const;
  Reply models() const;
  Reply health(std::string_view path) const;
  Reply busy(std::string_view why) const;

  ServiceOptions options_;
  std::vector<scheduling::Engine *> engines_;  // the first tokenises
  scheduling::Scheduler *scheduler_ = nullptr;
  std::string model_id_;
  bool draining_ = false;
  bool starts_soon_ = false;  // the scheduler is about to be told of new jobs
  telemetry::Metrics metrics_;
  boost::asio::thread_pool workers_;
};

Reply error_reply(unsigned status, std::string_view detail);

}  // namespace cua_server::http
