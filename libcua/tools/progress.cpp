// SPDX-License-Identifier: Apache-2.0
#include "tools/progress.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace cua::tools {
namespace {

std::atomic<int> stop_signal{0};

}  // namespace

void catch_stop_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(signal, [](int caught) { stop_signal = caught; }) == SIG_IGN) {
      std::signal(signal, SIG_IGN);
    }
  }
  // A file beyond the limit of the process (ulimit -f) is an error like a full disk, so that what
  // was written is removed.
  std::signal(SIGXFSZ, SIG_IGN);
}

bool stop_asked() { return stop_signal != 0; }

void raise_again() {
  std::signal(stop_signal, SIG_DFL);
  std::raise(stop_signal);
  std::_Exit(128 + stop_signal);
}

Progress::Progress(std::string what, uint64_t all)
    : what_(std::move(what)),
      all_(all),
      terminal_(::isatty(STDERR_FILENO) != 0),
      began_(std::chrono::steady_clock::now()),
      drawn_(began_) {}

Progress::~Progress() {
  if (terminal_ && shown_ > 0) std::fputc('\n', stderr);
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void Progress::add(uint64_t bytes) {
  if (stop_asked()) throw Stopped();
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  show();
}

void Progress::show() {
  if (all_ == 0) return;
  const int percent = static_cast<int>(done_ * 100 / all_);
  const auto now = std::chrono::steady_clock::now();
  if (terminal_) {
    if (done_ != all_ && shown_ > 0 && now - drawn_ < std::chrono::milliseconds(100)) return;
  } else if (percent / 10 == shown_ / 10 || now - drawn_ < std::chrono::seconds(1)) {
    return;
  }
  drawn_ = now;
  shown_ = percent == 0 ? 1 : percent;
  const double rate = static_cast<double>(done_) / std::max(seconds(), 1e-3);
  const auto left = static_cast<unsigned>(static_cast<double>(all_ - done_) / rate);
  std::fprintf(stderr, "%s%s: %3d %%, %.2f of %.2f GB, %.0f MB/s, %u:%02u left%s",
               terminal_ ? "\r" : "", what_.c_str(), percent, static_cast<double>(done_) * 1e-9,
               static_cast<double>(all_) * 1e-9, rate * 1e-6, left / 60, left % 60,
               terminal_ ? "   " : "\n");
}

}  // namespace cua::tools
