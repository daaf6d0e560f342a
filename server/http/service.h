// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "decision/request.h"
#include "http/reply.h"
#include "http/waiter.h"
#include "scheduling/engine.h"
#include "scheduling/scheduler.h"

namespace cua_server::http {

struct ServiceOptions {
  std::chrono::milliseconds request_timeout{};  // that a decision may wait; 0: for ever
  size_t workers = 1;                           // threads that parse and tokenise
};

// What the worker answers, apart from how HTTP carries it. Lives on the thread of the sockets.
class Service {
 public:
  explicit Service(const ServiceOptions &options);
  ~Service();

  // From then on there are decisions. Both must outlive the service's use.
  void is_ready(scheduling::Engine &engine, scheduling::Scheduler &scheduler);

  // The reply to a request that its head alone decides: an unknown path, a wrong method, /health.
  // nullopt: the body is needed, for decide().
  std::optional<Reply> route(std::string_view method, std::string_view target) const;
  // POST /v1/systemone. Never throws.
  boost::asio::awaitable<Reply> decide(std::string body, std::shared_ptr<Waiter> waiter);

  void start_draining() { draining_ = true; }
  const std::string &model_id() const { return model_id_; }

 private:
  struct Decision;  // a request on its way: checked and tokenised
  // On a thread of the pool.
  Decision prepare(std::string_view body) const;
  boost::asio::awaitable<scheduling::Result> score(std::vector<scheduling::Prompt> prompts,
                                                   std::shared_ptr<Waiter> waiter);
  Reply health(std::string_view path) const;
  Reply busy(std::string_view why) const;

  ServiceOptions options_;
  scheduling::Engine *engine_ = nullptr;
  scheduling::Scheduler *scheduler_ = nullptr;
  std::string model_id_;
  bool draining_ = false;
  boost::asio::thread_pool workers_;
};

Reply error_reply(unsigned status, std::string_view detail);

}  // namespace cua_server::http
