// SPDX-License-Identifier: Apache-2.0
#include "scheduling/scheduler.h"

#include <algorithm>
#include <utility>

#include "telemetry/log.h"

namespace cua_server::scheduling {

// A job in the queue. Guarded by the scheduler's mutex.
struct Scheduler::Pending {
  Job job;
  size_t next = 0;     // prompt that no pass has taken
  size_t running = 0;  // prompts in passes under way
  bool dropped = false;
  std::vector<cua_score> scores;
  std::optional<EngineError> error;
  Clock::time_point arrived = Clock::now(), began{};  // began: its first pass
};

struct Scheduler::Item {
  std::shared_ptr<Pending> pending;
  size_t index = 0;  // of the prompt in its job
  std::optional<EngineError> error;
  cua_score score{};
};

Scheduler::Scheduler(std::span<Engine *const> engines, const SchedulerOptions &options,
                     std::function<void()> device_lost)
    : options_(options), device_lost_(std::move(device_lost)), engines_(engines.size()) {
  for (Engine *const engine : engines) {
    threads_.emplace_back([this, engine] { run(*engine); });
  }
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread &thread : threads_) thread.join();
}

bool Scheduler::admit(uint64_t questions) {
  const std::lock_guard lock(mutex_);
  // One request alone is always taken, however many questions it has.
  const uint64_t before = waiting_ + admitted_;
  if (before != 0 &&
      (before + questions > options_.queue_questions || waiting_tokens_ >= options_.queue_tokens)) {
    return false;
  }
  admitted_ += questions;
  return true;
}

void Scheduler::release(uint64_t questions) {
  const std::lock_guard lock(mutex_);
  admitted_ -= std::min(admitted_, questions);
}

uint64_t Scheduler::submit(Job job, bool start) {
  auto pending = std::make_shared<Pending>();
  pending->scores.resize(job.prompts.size());
  if (job.id == 0) job.id = reserve();
  const uint64_t id = job.id;
  pending->job = std::move(job);
  {
    const std::lock_guard lock(mutex_);
    const auto &prompts = pending->job.prompts;
    admitted_ -= std::min<uint64_t>(admitted_, prompts.size());
    waiting_ += prompts.size();
    for (const Prompt &prompt : prompts) waiting_tokens_ += prompt.ids.size();
    jobs_.push_back(std::move(pending));
  }
  if (start) wake_.notify_one();
  return id;
}

// What waits of a job waits no more.
void Scheduler::forget(Pending &pending) {
  for (; pending.next < pending.job.prompts.size(); ++pending.next) {
    --waiting_;
    waiting_tokens_ -= pending.job.prompts[pending.next].ids.size();
  }
}

// Takes a job out of the queue.
void Scheduler::finish(std::list<std::shared_ptr<Pending>>::iterator at,
                       std::vector<std::shared_ptr<Pending>> &finished) {
  forget(**at);
  finished.push_back(*at);
  jobs_.erase(at);
}

void Scheduler::cancel(uint64_t id) {
  std::vector<std::shared_ptr<Pending>> finished;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(jobs_.begin(), jobs_.end(),
                                 [&](const auto &pending) { return pending->job.id == id; });
    if (at == jobs_.end()) return;
    Pending &pending = **at;
    pending.dropped = pending.next < pending.job.prompts.size();
    forget(pending);
    if (pending.running != 0) return;  // whoever runs them settles it
    finish(at, finished);
  }
  for (const auto &pending : finished) {
    pending->job.done(Dropped::cancelled, timing(*pending));
  }
}

QueueState Scheduler::queue() const {
  const std::lock_guard lock(mutex_);
  return {waiting_ + admitted_, waiting_tokens_, rate_ * static_cast<double>(engines_)};
}

std::optional<std::string> Scheduler::device_failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// The tokens of a pass.
uint64_t Scheduler::limit(const Engine &engine) const {
  const uint64_t most = engine.max_batch_tokens();
  return options_.max_batch_tokens == 0 ? most
                                        : std::min<uint64_t>(most, options_.max_batch_tokens);
}

// A prompt of each job in turn, until the pass is full. The mutex is held.
std::vector<Scheduler::Item> Scheduler::take(const Engine &engine) {
  const uint64_t most = limit(engine);
  std::vector<Item> items;
  uint64_t tokens = 0;
  for (size_t passed_over = 0; passed_over < jobs_.size();) {
    const std::shared_ptr<Pending> &pending = jobs_.front();
    if (pending->next == pending->job.prompts.size()) {
      ++passed_over;
    } else {
      const uint64_t more = pending->job.prompts[pending->next].ids.size();
      // Whoever does not fit is first in the next pass: nobody overtakes it.
      if (!items.empty() && (!options_.batch || tokens + more > most)) break;
      tokens += more;
      --waiting_;
      waiting_tokens_ -= more;
      ++pending->running;
      if (pending->began == Clock::time_point()) pending->began = Clock::now();
      items.push_back({pending, pending->next++, std::nullopt, {}});
      passed_over = 0;
    }
    jobs_.splice(jobs_.end(), jobs_, jobs_.begin());
  }
  return items;
}

// Scores the prompts of a pass together. Where that fails for another reason than the device, each
// alone, so that one request's failure is its own.
void Scheduler::score(Engine &engine, std::vector<Item> &items) {
  const auto attempt = [&](std::span<Item> some) {
    std::vector<const Prompt *> prompts;
    for (const Item &item : some) prompts.push_back(&item.pending->job.prompts[item.index]);
    std::optional<EngineError> error;
    try {
      const std::vector<cua_score> scores = engine.score(prompts);
      for (size_t i = 0; i < some.size(); ++i) some[i].score = scores[i];
      return true;
    } catch (const EngineError &failure) {
      error = failure;
    } catch (const std::exception &failure) {
      error = EngineError(CUA_INTERNAL, failure.what());
    }
    for (Item &item : some) item.error = error;
    return false;
  };
  if (attempt(items)) return;
  if (items.size() > 1 && items.front().error->code() != CUA_DEVICE_FAILED) {
    for (Item &item : items) {
      item.error.reset();
      attempt({&item, 1});
    }
  }
  for (const Item &item : items) {
    if (!item.error) continue;
    telemetry::log(
        telemetry::Level::error,
        "inference failed, code " + std::to_string(item.error->code()) + ": " + item.error->what());
    if (item.error->code() == CUA_DEVICE_FAILED) break;  // the same for all of them
  }
}

Timing Scheduler::timing(const Pending &pending) {
  const auto seconds = [](Clock::duration span) {
    return std::chrono::duration<double>(span).count();
  };
  const auto now = Clock::now();
  if (pending.began == Clock::time_point()) return {seconds(now - pending.arrived), 0};
  return {seconds(pending.began - pending.arrived), seconds(now - pending.began)};
}

// Hands out what a pass gave. False: its engine is lost, and takes no more work from the others;
// the last one stays, to fail what comes at once.
bool Scheduler::settle(std::vector<Item> &items, double seconds) {
  std::vector<std::shared_ptr<Pending>> finished;
  const auto lost = std::find_if(items.begin(), items.end(), [](const Item &item) {
    return item.error && item.error->code() == CUA_DEVICE_FAILED;
  });
  bool leaves = false, is_last = false;
  {
    const std::lock_guard lock(mutex_);
    const double now = static_cast<double>(items.size()) / std::max(seconds, 1e-6);
    rate_ = rate_ == 0 ? now : 0.8 * rate_ + 0.2 * now;
    if (lost != items.end()) {
      leaves = engines_ > 1;
      is_last = !leaves && !failure_;
      if (leaves) --engines_;
      if (is_last) failure_ = lost->error->what();
    }
    for (Item &item : items) {
      Pending &pending = *item.pending;
      --pending.running;
      if (item.error) {
        pending.error = std::move(item.error);
        forget(pending);
      } else {
        pending.scores[item.index] = item.score;
      }
    }
    for (const Item &item : items) {
      const Pending &pending = *item.pending;
      if (pending.running != 0 || pending.next < pending.job.prompts.size()) continue;
      const auto at = std::find(jobs_.begin(), jobs_.end(), item.pending);
      if (at != jobs_.end()) finish(at, finished);
    }
  }
  for (const auto &pending : finished) {
    const Timing spent = timing(*pending);
    if (pending->dropped) {
      pending->job.done(Dropped::cancelled, spent);
    } else if (pending->error) {
      pending->job.done(*pending->error, spent);
    } else {
      pending->job.done(std::move(pending->scores), spent);
    }
  }
  if (options_.settled) options_.settled();
  if (is_last && device_lost_) device_lost_();
  return !leaves;
}

void Scheduler::run(Engine &engine) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || waiting_ != 0; });
    if (waiting_ == 0) return;
    if (options_.batch && options_.batch_wait.count() > 0) {
      // Until there is company enough, or the time is over.
      wake_.wait_for(lock, options_.batch_wait,
                     [&] { return stop_ || waiting_tokens_ >= limit(engine); });
    }
    std::vector<Item> items = take(engine);
    if (items.empty()) continue;  // another engine took it, or it was dropped
    if (waiting_ != 0) wake_.notify_one();
    lock.unlock();
    const auto began = Clock::now();
    score(engine, items);
    const std::chrono::duration<double> seconds = Clock::now() - began;
    if (options_.observe) {
      PassReport report{items.size(), 0, seconds.count()};
      for (const Item &item : items) {
        report.tokens += item.pending->job.prompts[item.index].ids.size();
      }
      options_.observe(report);
    }
    const bool goes_on = settle(items, seconds.count());
    items.clear();  // what they held goes now, not while the next wait
    lock.lock();
    if (!goes_on) {
      telemetry::log(telemetry::Level::error, "a device is lost; the others go on");
      if (waiting_ != 0) wake_.notify_one();
      return;
    }
  }
}

}  // namespace cua_server::scheduling
