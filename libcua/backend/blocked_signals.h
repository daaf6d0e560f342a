// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <signal.h>

namespace cua::backend {

// Threads made meanwhile leave the process's signals to the host's own threads: its handlers may
// not be fit for a thread that it does not know. What a thread brings on itself (SIGSEGV and the
// like) stays open. The thread that made them has its own mask back afterwards.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals &) = delete;
  BlockedSignals &operator=(const BlockedSignals &) = delete;

 private:
  sigset_t before_;
};

}  // namespace cua::backend
