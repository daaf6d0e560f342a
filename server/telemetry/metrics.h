// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace cua_server::telemetry {

// How often values fell below each of some bounds, and their sum. Any thread.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  // As Prometheus has it: cumulative buckets, sum and count.
  void write(std::string &out, const char *name, const char *help) const;

 private:
  std::vector<double> bounds_;  // upper, ascending
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

// What the worker counts. Any thread. Label values are fixed: nothing that a client sends is one.
struct Metrics {
  Metrics();
  std::array<std::atomic<uint64_t>, 6> requests{};  // of /v1/systemone, by the answer's class: 2 to
                                                    // 5; 0: the client had gone
  std::atomic<uint64_t> questions{0}, prompt_tokens{0};  // answered
  Histogram prepare, queue, forward, request;            // seconds
  Histogram batch_prompts, batch_tokens;                 // of a pass
};

// Values that are read when somebody asks.
struct Gauges {
  uint64_t queue_questions = 0, queue_tokens = 0;
  uint64_t forwards = 0, captures = 0, replays = 0, fallbacks = 0;
  uint64_t device_bytes = 0, scratch_bytes = 0;
  bool ready = false;
  std::string model, device, version, library;
};

// The Prometheus text format, version 0.0.4. Every series is there from the start.
std::string metrics_text(const Metrics &metrics, const Gauges &gauges);
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace cua_server::telemetry
