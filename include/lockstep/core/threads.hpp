/// \file
/// How lockstep starts its own threads. Invariants: none of them takes a signal that is sent to the
/// process; signals that a fault raises in the thread itself are never blocked; a thread that cannot
/// start is one sentence.
#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): POSIX

#include <functional>
#include <string_view>
#include <system_error>
#include <thread>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// All signals except those that a fault raises in the thread that commits it: a blocked SIGSEGV
/// ends the process before a crash handler runs.
LOCKSTEP_DECL sigset_t asynchronous_signals();

/// While it lives, its thread and threads started there take no asynchronous signal: the program's
/// own threads handle them.
class SignalsBlocked {
 public:
  LOCKSTEP_DECL SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  LOCKSTEP_DECL ~SignalsBlocked();

 private:
  sigset_t before_;
};

[[noreturn]] LOCKSTEP_COLD_DECL void throw_thread_error(std::string_view place,
                                                        const std::system_error& error);

/// Forks without exec between the process of the first call and this one.
LOCKSTEP_DECL int forks();

/// The process in which an object was made that has threads or connections. As a deleter, it leaves
/// the object alone in a forked child, which has a copy of the object but not of its threads, and
/// whose connections are the parent's.
class OwningProcess {
 public:
  /// \throws UsageError, which begins with `place`, in a forked child.
  LOCKSTEP_DECL void check(std::string_view place) const;
  template <class T>
  void operator()(T* object) const {
    if (forks() == forks_) delete object;
  }

 private:
  int forks_ = forks();
};

/// A thread that computes: it keeps the cores of the thread that starts it, and takes no
/// asynchronous signal. \throws std::system_error if the system has no thread left.
LOCKSTEP_COLD_DECL std::thread start_computing_thread(std::function<void()> f);

/// A thread that mostly waits, on any core that the process has; it takes no asynchronous signal.
/// \throws Error that names `place`, if the system has no thread left.
LOCKSTEP_COLD_DECL std::thread start_thread(std::string_view place, std::function<void()> f);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/threads.ipp"
#endif
