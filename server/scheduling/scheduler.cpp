// SPDX-License-Identifier: Apache-2.0
#include "scheduling/scheduler.h"

#include <utility>

#include "telemetry/log.h"

namespace cua_server::scheduling {

Scheduler::Scheduler(Engine &engine, std::function<void()> device_lost)
    : engine_(engine), device_lost_(std::move(device_lost)), thread_([this] { run(); }) {}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Scheduler::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(job));
  }
  wake_.notify_one();
}

std::optional<std::string> Scheduler::device_failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Scheduler::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Result result;
    bool lost = false;
    try {
      result = engine_.score(job.prompts);
    } catch (const EngineError &error) {
      result = error;
    } catch (const std::exception &error) {
      result = EngineError(CUA_INTERNAL, error.what());
    }
    if (const auto *const error = std::get_if<EngineError>(&result)) {
      telemetry::log(
          telemetry::Level::error,
          "inference failed, code " + std::to_string(error->code()) + ": " + error->what());
      if (error->code() == CUA_DEVICE_FAILED) {
        const std::lock_guard failing(mutex_);
        lost = !failure_;
        if (lost) failure_ = error->what();
      }
    }
    job.done(std::move(result));
    job = {};  // what it held goes now, not while the next job waits
    if (lost && device_lost_) device_lost_();
    lock.lock();
  }
}

}  // namespace cua_server::scheduling
