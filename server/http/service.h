// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "decision/request.h"
#include "http/reply.h"
#include "scheduling/engine.h"
#include "scheduling/scheduler.h"

namespace cua_server::http {

// What the worker answers, apart from how HTTP carries it. Lives on the thread of the sockets.
class Service {
 public:
  Service(scheduling::Engine &engine, scheduling::Scheduler &scheduler);

  // The reply to a request that its head alone decides: an unknown path, a wrong method, /health.
  // nullopt: the body is needed, for decide().
  std::optional<Reply> route(std::string_view method, std::string_view target) const;
  // POST /v1/systemone. Never throws.
  boost::asio::awaitable<Reply> decide(std::string body);

  void start_draining() { draining_ = true; }
  const std::string &model_id() const { return model_id_; }

 private:
  struct Decision;  // a request on its way: checked and tokenised
  Decision prepare(std::string_view body) const;
  boost::asio::awaitable<scheduling::Result> score(std::vector<scheduling::Prompt> prompts);
  Reply health() const;

  scheduling::Engine &engine_;
  scheduling::Scheduler &scheduler_;
  std::string model_id_;
  bool draining_ = false;
  boost::asio::thread_pool workers_{1};  // for bodies that would hold the sockets up
};

Reply error_reply(unsigned status, std::string_view detail);

}  // namespace cua_server::http
