// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

namespace cua::tools {

// Thrown from add() once a signal has asked for an end; the caller cleans up, then calls
// raise_again.
class Stopped : public std::exception {
 public:
  const char *what() const noexcept override { return "stopped by a signal"; }
};

// From here on SIGINT, SIGTERM and SIGHUP only ask for an end, unless they are ignored (nohup), and
// a file that may not grow is an error.
void catch_stop_signals();
// Whether one has come.
bool stop_asked();
// Ends the process as the signal would have.
[[noreturn]] void raise_again();

// How far a piece of work has come, on the standard error stream: a line that is drawn over on a
// terminal, with rate and time left; elsewhere a plain line for every tenth that takes longer than
// a second. Thread safe.
class Progress {
 public:
  // all: bytes; 0: none, nothing is shown
  Progress(std::string what, uint64_t all);
  ~Progress();  // ends the line
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;
  // Throws Stopped.
  void add(uint64_t bytes);
  double seconds() const;

 private:
  void show();

  std::string what_;
  uint64_t all_, done_ = 0;
  bool terminal_;
  int shown_ = 0;
  std::chrono::steady_clock::time_point began_, drawn_;
  std::mutex mutex_;
};

}  // namespace cua::tools
