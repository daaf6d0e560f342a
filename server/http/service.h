// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "http/pipeline.h"
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
  std::vector<std::string> cors_origins;        // whose pages may ask; "*": all
  bool has_page = true;                         // at /
  std::string version;
};

// What of a request's head decides. An absent header is empty.
struct RequestHead {
  std::string_view method, target;
  std::string_view authorization = {};
  std::string_view origin = {};
  std::string_view wanted_method = {}, wanted_headers = {};  // Access-Control-Request-...
};

// What the worker answers, apart from how HTTP carries it. Lives on the thread of the sockets.
class Service {
 public:
  explicit Service(const ServiceOptions &options);

  // From then on there are decisions. Both must outlive the service's use.
  void is_ready(std::span<scheduling::Engine *const> engines, scheduling::Scheduler &scheduler);
  // What a scheduler tells of its passes. Any thread.
  void observe(const scheduling::PassReport &pass);
  void settled() { pipeline_.settled(); }

  // The reply to a request that its head alone decides: an unknown path, a wrong method, /health.
  // nullopt: the body is needed, for decide().
  std::optional<Reply> route(const RequestHead &head) const;
  // The headers that let a page of that origin read a reply; empty where it may not.
  std::string cors_headers(std::string_view origin) const;
  // Tells metrics and log of a request that no decision was tried for.
  void refused(unsigned status, const std::string &id);
  // POST /v1/systemone.
  boost::asio::awaitable<Reply> decide(std::string body, std::shared_ptr<Waiter> waiter) {
    return pipeline_.decide(std::move(body), std::move(waiter));
  }

  // Whether a decision takes long enough for its client to be gone before it.
  bool is_worth_watching() const;

  // Not ready from then on; what comes is answered, and its connection closed.
  void start_draining() { draining_ = true; }
  bool draining() const { return draining_; }
  const std::string &model_id() const { return model_id_; }

 private:
  bool may_enter(std::string_view authorization) const;
  bool may_share(std::string_view origin) const;
  std::optional<Reply> decide_by_head(const RequestHead &head, std::string_view path) const;
  Reply page() const;
  Reply preflight(const RequestHead &head) const;
  Reply metrics() const;
  Reply models() const;
  Reply health(std::string_view path) const;

  ServiceOptions options_;
  std::vector<scheduling::Engine *> engines_;  // the first tokenises
  scheduling::Scheduler *scheduler_ = nullptr;
  std::string model_id_;
  bool draining_ = false;
  telemetry::Metrics metrics_;
  Pipeline pipeline_;
};

}  // namespace cua_server::http
