// SPDX-License-Identifier: Apache-2.0
//
// Times of work on a stream by the device's own clock.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/device_memory.h"

namespace cua::tools {

using backend::cuda::check;

// Two events around each operation, read once the stream is idle.
class EventClock {
 public:
  EventClock() = default;
  EventClock(const EventClock &) = delete;
  EventClock &operator=(const EventClock &) = delete;
  ~EventClock() {
    for (const Span &span : spans_) {
      (void)cudaEventDestroy(span.start);
      (void)cudaEventDestroy(span.stop);
    }
  }
  template <class Backend, class Run>
  void time(Backend &backend, const std::string &name, const Run &run) {
    if (used_ == spans_.size()) {
      spans_.emplace_back();
      check(cudaEventCreate(&spans_.back().start), "making an event");
      check(cudaEventCreate(&spans_.back().stop), "making an event");
    }
    Span &span = spans_[used_++];
    span.name = name;
    check(cudaEventRecord(span.start, backend.stream()), "timing");
    run();
    check(cudaEventRecord(span.stop, backend.stream()), "timing");
  }
  std::map<std::string, double> read() {
    std::map<std::string, double> seconds;
    for (size_t i = 0; i < used_; ++i) {
      float milliseconds = 0;
      check(cudaEventSynchronize(spans_[i].stop), "timing");
      check(cudaEventElapsedTime(&milliseconds, spans_[i].start, spans_[i].stop), "timing");
      seconds[spans_[i].name] += milliseconds * 1e-3;
    }
    used_ = 0;
    return seconds;
  }

 private:
  struct Span {
    std::string name;
    cudaEvent_t start = nullptr, stop = nullptr;
  };
  std::vector<Span> spans_;
  size_t used_ = 0;
};

// Seconds of one of several runs.
template <class Run>
double seconds_on(cudaStream_t stream, const Run &run) {
  constexpr int kRuns = 20;
  struct {
    cudaStream_t stream() const { return of; }
    cudaStream_t of;
  } const on{stream};
  EventClock clock;
  run();
  clock.time(on, "", [&] {
    for (int i = 0; i < kRuns; ++i) run();
  });
  return clock.read()[""] / kRuns;
}

// Bytes that a copy within the device reads and writes a second; both of the same size.
inline double copy_bytes_per_s(const backend::cuda::DeviceMemory &from,
                               const backend::cuda::DeviceMemory &to, cudaStream_t stream) {
  return 2 * static_cast<double>(from.bytes()) / seconds_on(stream, [&] {
           check(cudaMemcpyAsync(to.as<std::byte>(), from.as<std::byte>(), from.bytes(),
                                 cudaMemcpyDeviceToDevice, stream),
                 "measuring the card");
         });
}

}  // namespace cua::tools
