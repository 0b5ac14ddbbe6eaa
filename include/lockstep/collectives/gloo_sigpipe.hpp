/// \file
/// Writing to a connection that the other side has closed. Invariant: the signal that the system
/// sends for it reaches nobody, and no signal handler of the program is changed.
#pragma once

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace lockstep::detail {

/// While it lives, SIGPIPE is blocked in its thread and in threads made there. Gloo writes without
/// MSG_NOSIGNAL, so a peer that died would end this process, too.
class SigpipeBlocked {
 public:
  SigpipeBlocked() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  SigpipeBlocked(const SigpipeBlocked&) = delete;
  SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;
  ~SigpipeBlocked() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    sigset_t pending;
    const timespec at_once{0, 0};
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1)
      sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
};

}  // namespace lockstep::detail
