// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "scheduling/engine.h"

namespace cua_server::scheduling {

enum class Dropped { cancelled };  // before it was finished, by who waited

// The scores of a job, or why there are none.
using Result = std::variant<std::vector<cua_score>, EngineError, Dropped>;

// Where a job's time went, in seconds.
struct Timing {
  double queue = 0;  // until its first pass began
  double infer = 0;  // from there to its end
};

// The prompts of one request.
struct Job {
  std::vector<Prompt> prompts;
  // Called once, on a thread of the scheduler or of cancel(); must not throw or block.
  std::function<void(Result, Timing)> done;
  uint64_t id = 0;  // of reserve(); 0: submit() gives one
};

// A pass that is over.
struct PassReport {
  uint64_t prompts = 0, tokens = 0;
  double seconds = 0;
};

struct SchedulerOptions {
  bool batch = true;                       // several prompts a pass
  uint32_t max_batch_tokens = 0;           // of a pass; 0: the engine's own limit
  std::chrono::microseconds batch_wait{};  // for company, once a prompt is there
  // What may wait beside the passes under way; a request that finds room is never refused later.
  uint64_t queue_questions = 1024, queue_tokens = 4'000'000;
  // On a thread of the scheduler; may be empty. observe: a pass is over, its jobs' done() come
  // next; settled: they have been called.
  std::function<void(const PassReport &)> observe;
  std::function<void()> settled;
};

// What waits, and how fast it goes.
struct QueueState {
  uint64_t questions = 0, tokens = 0;
  double questions_per_second = 0;  // of late; 0: not known yet
};

// The queue in front of one or more engines: one thread for each engine, one queue that owns its
// state. A pass is what waits when an engine becomes free: a prompt of each request in turn, until
// the pass is full. So a request of many questions holds nobody up.
class Scheduler {
 public:
  // device_lost is called once the last engine is lost, on a thread of the scheduler, after the
  // failed jobs have been answered. The engines must be of one model.
  Scheduler(std::span<Engine *const> engines, const SchedulerOptions &options,
            std::function<void()> device_lost = {});
  // Finishes what is queued.
  ~Scheduler();
  Scheduler(const Scheduler &) = delete;
  Scheduler &operator=(const Scheduler &) = delete;

  // Takes room for a request of so many questions, before anything is spent on it; false: the queue
  // is full. What was admitted is submitted or released.
  bool admit(uint64_t questions);
  void release(uint64_t questions);
  // A number for a job to come, so that cancel() can be asked for before submit() is through; of a
  // job that is not submitted yet it does nothing.
  uint64_t reserve() { return ++last_id_; }
  // Gives the job's number. The questions of the job were admitted. Where not `start`, an
  // engine that sleeps begins with it at the next start() only: one waking for many jobs.
  uint64_t submit(Job job, bool start = true);
  void start() { wake_.notify_one(); }
  // Drops what has not begun. The job's done() gets Dropped, at once or when its running prompts
  // are through; where those were its last, it gets the scores after all. Nothing happens where the
  // job is finished.
  void cancel(uint64_t id);

  QueueState queue() const;
  // Why the devices are lost for good; nullopt while one of them works.
  std::optional<std::string> device_failure() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending;
  struct Item;  // a prompt of a pass

  void run(Engine &engine);
  uint64_t limit(const Engine &engine) const;
  std::vector<Item> take(const Engine &engine);
  void score(Engine &engine, std::vector<Item> &items);
  bool settle(std::vector<Item> &items, double seconds);
  void forget(Pending &pending);
  static Timing timing(const Pending &pending);
  void finish(std::list<std::shared_ptr<Pending>>::iterator at,
              std::vector<std::shared_ptr<Pending>> &finished);

  SchedulerOptions options_;
  std::function<void()> device_lost_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::list<std::shared_ptr<Pending>> jobs_;  // whose turn it is first
  std::atomic<uint64_t> last_id_{0};
  uint64_t admitted_ = 0;                      // questions that hold room and are not submitted yet
  uint64_t waiting_ = 0, waiting_tokens_ = 0;  // prompts that no pass has taken
  double rate_ = 0;                            // questions a second, smoothed
  std::optional<std::string> failure_;
  size_t engines_ = 0;  // that are not lost
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cua_server::scheduling
