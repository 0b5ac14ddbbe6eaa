/// \file
/// Writing to a connection that the other side has closed. Invariant: the signal that the system
/// sends for it reaches nobody, and no signal handler of the program is changed.
#pragma once

#include <csignal>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// While it lives, SIGPIPE is blocked in its thread and in threads made there. Gloo writes without
/// MSG_NOSIGNAL, so a peer that died would end this process, too.
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
