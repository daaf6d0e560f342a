// SPDX-License-Identifier: Apache-2.0
#include "telemetry/metrics.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace cua_server::telemetry {
namespace {

std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

void head(std::string &out, const char *name, const char *type, const char *help) {
  out += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void one(std::string &out, const char *name, const char *type, const char *help, double value) {
  head(out, name, type, help);
  out += std::string(name) + " " + text_of(value) + "\n";
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Powers of two from the first on.
std::vector<double> doubling(double first, int n) {
  std::vector<double> bounds;
  for (int i = 0; i < n; ++i, first *= 2) bounds.push_back(first);
  return bounds;
}

}  // namespace

void Histogram::add(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

void Histogram::write(std::string &out, const char *name, const char *help) const {
  head(out, name, "histogram", help);
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i].load(std::memory_order_relaxed);
    out += std::string(name) + "_bucket{le=\"" +
           (i < bounds_.size() ? text_of(bounds_[i]) : std::string("+Inf")) + "\"} " +
           std::to_string(seen) + "\n";
  }
  out += std::string(name) + "_sum " + text_of(sum_.load(std::memory_order_relaxed)) + "\n" + name +
         "_count " + std::to_string(seen) + "\n";
}

Metrics::Metrics()
    : prepare(doubling(2e-5, 14)),
      queue(doubling(1e-4, 18)),
      forward(doubling(5e-4, 16)),
      request(doubling(5e-4, 17)),
      batch_prompts(doubling(1, 8)),
      batch_tokens(doubling(64, 10)) {}

std::string metrics_text(const Metrics &metrics, const Gauges &gauges) {
  std::string out;
  head(out, "cua_requests_total", "counter",
       "Requests for decisions, by the class of their answer");
  constexpr const char *kClasses[] = {"gone", nullptr, "2xx", "3xx", "4xx", "5xx"};
  for (size_t i = 0; i < metrics.requests.size(); ++i) {
    if (kClasses[i] == nullptr) continue;
    out += std::string("cua_requests_total{code=\"") + kClasses[i] + "\"} " +
           std::to_string(metrics.requests[i].load(std::memory_order_relaxed)) + "\n";
  }
  const auto count = [&](const char *name, const char *help, uint64_t value) {
    one(out, name, "counter", help, static_cast<double>(value));
  };
  const auto gauge = [&](const char *name, const char *help, double value) {
    one(out, name, "gauge", help, value);
  };
  count("cua_questions_total", "Questions answered", metrics.questions);
  count("cua_prompt_tokens_total", "Tokens of the prompts answered", metrics.prompt_tokens);
  gauge("cua_queue_questions", "Questions that wait", static_cast<double>(gauges.queue_questions));
  gauge("cua_queue_tokens", "Tokens of prompts that wait",
        static_cast<double>(gauges.queue_tokens));
  metrics.prepare.write(out, "cua_prepare_seconds", "Parsing and tokenising a request");
  metrics.queue.write(out, "cua_queue_seconds", "From there to the start of its first pass");
  metrics.forward.write(out, "cua_forward_seconds", "A pass");
  metrics.request.write(out, "cua_request_seconds", "From the end of a request to its answer");
  metrics.batch_prompts.write(out, "cua_batch_prompts", "Prompts of a pass");
  metrics.batch_tokens.write(out, "cua_batch_tokens", "Tokens of a pass");
  count("cua_forwards_total", "Passes of the library", gauges.forwards);
  count("cua_graph_captures_total", "Passes captured as CUDA graphs", gauges.captures);
  count("cua_graph_replays_total", "Passes replayed from CUDA graphs", gauges.replays);
  count("cua_graph_fallbacks_total", "Captures that failed for good", gauges.fallbacks);
  gauge("cua_device_bytes", "Memory held on the devices", static_cast<double>(gauges.device_bytes));
  gauge("cua_scratch_bytes", "Of it, scratch of passes", static_cast<double>(gauges.scratch_bytes));
  gauge("cua_ready", "1 once decisions are made, and until draining", gauges.ready ? 1 : 0);
  head(out, "cua_build_info", "gauge", "The worker's version");
  out += "cua_build_info{version=" + quoted(gauges.version) + "} 1\n";
  head(out, "cua_model_info", "gauge", "The model and where it runs");
  out +=
      "cua_model_info{model=" + quoted(gauges.model) + ",device=" + quoted(gauges.device) + "} 1\n";
  return out;
}

}  // namespace cua_server::telemetry
