/// \file
/// Protection from SIGPIPE, which a write to a closed connection raises. Invariant: the signal is
/// never delivered, and no signal handler of the program is changed.
#pragma once

#include <csignal>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Blocks SIGPIPE in the calling thread, and in threads started there, for its lifetime. Gloo
/// writes without MSG_NOSIGNAL, so the death of a peer would otherwise end this process, too.
class SigpipeBlocked {
 public:
  LOCKSTEP_COLD_DECL SigpipeBlocked();
  SigpipeBlocked(const SigpipeBlocked&) = delete;
  SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;
  LOCKSTEP_COLD_DECL ~SigpipeBlocked();

 private:
  sigset_t pipe_, before_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_sigpipe.ipp"
#endif
