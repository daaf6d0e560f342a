// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cua::backend::cpu {

// A fixed set of threads for loops of one pass. One caller at a time.
class ThreadPool {
 public:
  // threads: in all, the caller's own included; at least 1.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Calls body(item, thread) once for every item below `items`, in any order, on any of the
  // threads (numbered from 0), and returns when all are done. The body does not throw.
  void run(size_t items, const std::function<void(size_t item, size_t thread)> &body);

 private:
  void work(size_t thread);
  void drain(size_t thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<void(size_t, size_t)> *body_ = nullptr;
  size_t items_ = 0;
  std::atomic<size_t> next_{0};
  size_t round_ = 0;
  size_t busy_ = 0;
  bool stop_ = false;
};

}  // namespace cua::backend::cpu
