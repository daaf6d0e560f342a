// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cua::checkpoint {

// Runs task(0) to task(count - 1), each once, on up to `threads` threads (0: all cores), this one
// among them, in about that order. The first exception ends the work and is thrown here.
inline void run_on_workers(size_t count, size_t threads, const std::function<void(size_t)> &task) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (size_t i; (i = next.fetch_add(1)) < count;) task(i);
    } catch (...) {
      next.store(count);
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> pool;
  try {
    for (size_t i = 1; i < std::min(threads, count); ++i) pool.emplace_back(work);
  } catch (const std::exception &) {
    // The system gives no more threads: those there are do the work.
  }
  work();
  for (std::thread &thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace cua::checkpoint
