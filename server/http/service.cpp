// SPDX-License-Identifier: Apache-2.0
#include "http/service.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <utility>

#include "decision/answer.h"
#include "decision/request.h"
#include "openapi.h"
#include "page.h"
#include "telemetry/log.h"

namespace cua_server::http {
namespace {

namespace beast = boost::beast;

// The pinned id of the real weights; a model folder may name its own.
constexpr std::string_view kModelId =
    "cua-ai/cua-s1-4b-0.2@16818868b0cc7813808aae4e87b417657046ab79:text";

// Target to path: without the query, and without the scheme and authority of the absolute form.
std::string_view path_of(std::string_view target) {
  target = target.substr(0, target.find('?'));
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (beast::iequals(target.substr(0, scheme.size()), scheme)) {
      const size_t slash = target.find('/', scheme.size());
      return slash == target.npos ? "/" : target.substr(slash);
    }
  }
  return target;
}

// Of the name of a header.
bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
}

// A JSON string, by error_json's escaping.
std::string json_text(std::string_view value) {
  const std::string json = decision::error_json(value);
  const size_t colon = json.find(':') + 1;
  return json.substr(colon, json.size() - colon - 1);
}

}  // namespace

Service::Service(const ServiceOptions &options)
    : options_(options),
      pipeline_({options.request_timeout, options.workers, options.accepted_models}, metrics_) {}

void Service::is_ready(std::span<scheduling::Engine *const> engines,
                       scheduling::Scheduler &scheduler) {
  engines_.assign(engines.begin(), engines.end());
  scheduler_ = &scheduler;
  model_id_ = engines_.front()->model().value_or(std::string(kModelId));
  pipeline_.is_ready(engines, scheduler, model_id_);
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
  const std::string note = decision::is_demonstration(model_id_)
                               ? ",\"note\":" + json_text(decision::kDemonstrationNote)
                               : "";
  return json_reply(200, "{\"status\":\"ready\",\"model\":" + json_text(model_id_) + note + "}");
}

bool Service::may_share(std::string_view origin) const {
  if (origin.empty()) return false;
  return std::any_of(options_.cors_origins.begin(), options_.cors_origins.end(),
                     [&](const std::string &listed) { return listed == "*" || listed == origin; });
}

std::string Service::cors_headers(std::string_view origin) const {
  if (options_.cors_origins.empty()) return {};
  std::string headers = "\r\nVary: Origin";
  if (may_share(origin)) {
    headers += "\r\nAccess-Control-Allow-Origin: ";
    headers += origin;
    headers +=
        "\r\nAccess-Control-Expose-Headers: X-Request-Id, x-typesafe-request-id, Server-Timing, "
        "Retry-After, retry-after-ms";
  }
  return headers;
}

// A browser asks whether a page may send a request.
Reply Service::preflight(const RequestHead &head) const {
  Reply reply;
  reply.status = 204;
  reply.headers = "\r\nAccess-Control-Allow-Methods: GET, POST\r\nAccess-Control-Max-Age: 600";
  std::string allowed;
  for (std::string_view rest = head.wanted_headers; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view name = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    name.remove_prefix(std::min(name.find_first_not_of(" \t"), name.size()));
    name = name.substr(0, name.find_last_not_of(" \t") + 1);
    const auto is = [&](std::string_view known) { return beast::iequals(name, known); };
    constexpr std::string_view kPrefix = "x-typesafe-";
    if (is("authorization") || is("content-type") || is("x-request-id") ||
        (beast::iequals(name.substr(0, kPrefix.size()), kPrefix) &&
         std::all_of(name.begin(), name.end(), is_plain))) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(name);
    }
  }
  if (!allowed.empty()) reply.headers += "\r\nAccess-Control-Allow-Headers: " + allowed;
  return reply;
}

// For a person with a browser.
Reply Service::page() const {
  Reply reply = json_reply(200, kPage);
  reply.type = "text/html; charset=utf-8";
  reply.headers = std::string("\r\nContent-Security-Policy: ") + kPagePolicy +
                  "\r\nCache-Control: no-cache\r\nX-Content-Type-Options: nosniff"
                  "\r\nReferrer-Policy: no-referrer";
  return reply;
}

void Service::refused(unsigned status, const std::string &id) {
  ++metrics_.requests[std::clamp(status / 100, 2u, 5u)];
  telemetry::log(telemetry::Level::info, "refused",
                 {{"id", id}, {"status", std::to_string(status)}});
}

std::optional<Reply> Service::route(const RequestHead &head) const {
  const std::string_view path = path_of(head.target);
  const bool is_probe =
      path == "/health" || path == "/livez" || path == "/readyz" || path == "/metrics";
  std::optional<Reply> reply = decide_by_head(head, path);
  if (reply) reply->counts = reply->status >= 400 && !is_probe;
  return reply;
}

std::optional<Reply> Service::decide_by_head(const RequestHead &head, std::string_view path) const {
  const bool is_health = path == "/health" || path == "/livez" || path == "/readyz";
  const bool is_metrics = path == "/metrics", is_models = path == "/v1/models";
  const bool is_openapi = path == "/openapi.json", is_page = options_.has_page && path == "/";
  if (!is_health && !is_metrics && !is_models && !is_openapi && !is_page &&
      path != "/v1/systemone") {
    return error_reply(404, "not found: the paths are /v1/systemone and /health");
  }
  if (head.method == "OPTIONS" && !head.wanted_method.empty() && may_share(head.origin)) {
    return preflight(head);
  }
  const std::string_view allowed = path == "/v1/systemone" ? "POST" : is_page ? "GET, HEAD" : "GET";
  const bool is_allowed = is_page ? head.method == "GET" || head.method == "HEAD"  //
                                  : head.method == allowed;
  if (!is_allowed) {
    Reply reply = error_reply(405, "method not allowed: use " + std::string(allowed));
    reply.allow = allowed;
    return reply;
  }
  const bool open = is_health || is_openapi || is_page || (is_metrics && !options_.protect_metrics);
  if (!open && !options_.api_keys.empty() && !may_enter(head.authorization)) {
    Reply reply = error_reply(401,
                              "not authorized: an Authorization header with a valid Bearer key "
                              "is needed");
    reply.headers = "\r\nWWW-Authenticate: Bearer";
    return reply;
  }
  if (is_health) return health(path);
  if (is_metrics) return metrics();
  if (is_models) return models();
  if (is_page) return page();
  if (is_openapi) return json_reply(200, kOpenApi);
  if (scheduler_ == nullptr) return pipeline_.busy("the model is loading");
  return std::nullopt;
}

}  // namespace cua_server::http
