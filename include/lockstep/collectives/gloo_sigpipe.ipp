#pragma once

#include "lockstep/collectives/gloo_sigpipe.hpp"

#include <pthread.h>

#include <ctime>

namespace lockstep::detail {

SigpipeBlocked::SigpipeBlocked() {
  sigemptyset(&pipe_);
  sigaddset(&pipe_, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
}

SigpipeBlocked::~SigpipeBlocked() {
  if (sigismember(&before_, SIGPIPE) == 1) return;
  // Consume a pending SIGPIPE, which unblocking would deliver.
  sigset_t pending;
  const timespec at_once{0, 0};
  if (sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1)
    sigtimedwait(&pipe_, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace lockstep::detail
