// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/thread_pool.h"

#include <algorithm>

#include "backend/blocked_signals.h"

namespace cua::backend::cpu {

ThreadPool::ThreadPool(size_t threads) {
  const BlockedSignals blocked;
  workers_.reserve(threads - 1);
  try {
    for (size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {  // the system has no more threads: stop those that run
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    start_.notify_all();
    for (std::thread &worker : workers_) worker.join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread &worker : workers_) worker.join();
}

void ThreadPool::run(size_t items, const std::function<void(size_t, size_t)> &body) {
  if (items <= 1 || workers_.empty()) {
    for (size_t item = 0; item < items; ++item) body(item, 0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    items_ = items;
    next_.store(0, std::memory_order_relaxed);
    busy_ = workers_.size();
    ++round_;
  }
  start_.notify_all();
  drain(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::drain(size_t thread) {
  for (size_t item; (item = next_.fetch_add(1, std::memory_order_relaxed)) < items_;) {
    (*body_)(item, thread);
  }
}

void ThreadPool::work(size_t thread) {
  size_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    start_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    lock.unlock();
    drain(thread);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace cua::backend::cpu
