/// \file
/// Keeps Gloo's descriptors from the programs that a worker starts. Invariant: no other descriptor
/// of the process is touched.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

LOCKSTEP_COLD_DECL bool same_address(const sockaddr_storage& a, const sockaddr_storage& b);

/// f(number) for each open descriptor of this process; for none without /proc.
LOCKSTEP_COLD_DECL void for_each_descriptor(const std::function<void(int)>& f);

/// Marks the epoll descriptor that watches `watched`: Gloo opens it without EPOLL_CLOEXEC.
LOCKSTEP_COLD_DECL void set_epoll_cloexec(int watched);

/// Marks this process' sockets with an end at one of the `places`: a program that it starts does
/// not inherit them. Gloo (2022-05) opens them without SOCK_CLOEXEC, and has no handle for them.
LOCKSTEP_COLD_DECL void set_cloexec(const std::vector<sockaddr_storage>& places);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_exec.ipp"
#endif
