// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "scheduling/engine.h"

namespace cua_server::scheduling {

// The scores of a job, or why there are none.
using Result = std::variant<std::vector<cua_score>, EngineError>;

// Prompts that are scored together, in one call of the library.
struct Job {
  std::vector<Prompt> prompts;
  // Called once, on the scheduler's thread; must not throw or block.
  std::function<void(Result)> done;
};

// One engine's queue and the one thread that scores: first come, first served.
class Scheduler {
 public:
  // device_lost is called once, on the scheduler's thread, after the failed job has been answered.
  explicit Scheduler(Engine &engine, std::function<void()> device_lost = {});
  // Finishes what is queued.
  ~Scheduler();
  Scheduler(const Scheduler &) = delete;
  Scheduler &operator=(const Scheduler &) = delete;

  void submit(Job job);
  // Why the device is lost for good; nullopt while it is not.
  std::optional<std::string> device_failure() const;

 private:
  void run();

  Engine &engine_;
  std::function<void()> device_lost_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> queue_;
  std::optional<std::string> failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace cua_server::scheduling
