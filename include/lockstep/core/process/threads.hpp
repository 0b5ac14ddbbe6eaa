/// \file
/// Creation of lockstep's own threads, and the end of threads by POSIX. Invariants: own threads do
/// not receive signals sent to the process; signals raised by a fault in the thread itself are never
/// blocked; failure to start a thread is reported in one sentence.
#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): POSIX

#include <exception>
#include <functional>
#include <string_view>
#include <system_error>
#include <thread>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// All signals except those raised by a fault in the thread itself: a blocked SIGSEGV would end the
/// process before a crash handler runs.
LOCKSTEP_DECL sigset_t asynchronous_signals();

/// Blocks asynchronous signals in the current thread, and in threads started from it, for the
/// lifetime of the object. The program's own threads handle them.
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

/// Defers pthread_cancel in the current thread for the lifetime of the object, except in `point`.
/// Destructors wait for other threads, and must not be unwound.
class CancellationDeferred {
 public:
  LOCKSTEP_DECL CancellationDeferred();
  CancellationDeferred(const CancellationDeferred&) = delete;
  CancellationDeferred& operator=(const CancellationDeferred&) = delete;
  LOCKSTEP_DECL ~CancellationDeferred();

  /// Ends the thread, by unwinding its stack, if it was cancelled.
  LOCKSTEP_DECL static void point();

 private:
  int before_ = 0;
  bool outer_;
};

/// As std::current_exception, but an Error if pthread_exit or pthread_cancel unwinds the stack.
LOCKSTEP_COLD_DECL std::exception_ptr current_error();

/// Number of forks (without exec) between the process of the first call and this one.
LOCKSTEP_DECL int forks();

/// Identifies the process that created an object with threads or connections. Used as a deleter, it
/// does not destroy the object in a forked child, which has a copy of the object but not its
/// threads, and whose connections belong to the parent.
class OwningProcess {
 public:
  /// \throws UsageError, with a message that begins with `place`, in a forked child.
  LOCKSTEP_DECL void check(std::string_view place) const;
  template <class T>
  void operator()(T* object) const {
    const CancellationDeferred deferred;
    if (forks() == forks_) delete object;
  }

 private:
  int forks_ = forks();
};

/// Starts a thread that computes. It inherits the cores of the calling thread and blocks
/// asynchronous signals. \throws std::system_error if no thread can be started.
LOCKSTEP_COLD_DECL std::thread start_computing_thread(std::function<void()> f);

/// Starts a thread that mostly waits. It may run on all cores of the process and blocks
/// asynchronous signals. \throws Error, with a message that begins with `place`, if no thread can
/// be started.
LOCKSTEP_COLD_DECL std::thread start_thread(std::string_view place, std::function<void()> f);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/process/threads.ipp"
#endif
