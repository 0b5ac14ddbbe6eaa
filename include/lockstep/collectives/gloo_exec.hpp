/// \file
/// Sets FD_CLOEXEC on Gloo's descriptors, so that programs started by a worker do not inherit them.
/// Invariant: no other descriptor of the process is changed.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Whether both have the same IP address and port.
LOCKSTEP_COLD_DECL bool same_address(const sockaddr_storage& a, const sockaddr_storage& b);

/// Calls f(number) for each open descriptor of this process; for none if /proc is not mounted.
LOCKSTEP_COLD_DECL void for_each_descriptor(const std::function<void(int)>& f);

/// Marks the epoll descriptor that watches `watched`; Gloo opens it without EPOLL_CLOEXEC.
LOCKSTEP_COLD_DECL void set_epoll_cloexec(int watched);

/// Marks this process' sockets whose local or remote address is one of `addresses`. Gloo (2022-05)
/// opens them without SOCK_CLOEXEC and does not expose their descriptors.
LOCKSTEP_COLD_DECL void set_cloexec(const std::vector<sockaddr_storage>& addresses);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_exec.ipp"
#endif
