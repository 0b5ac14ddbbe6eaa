/// \file
/// How lockstep starts its own threads. Invariants: a thread that cannot start is one sentence;
/// signals that a fault raises in the thread itself are never blocked.
#pragma once

#include <pthread.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): POSIX

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/core/cores.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// All signals except those that a fault raises in the thread that commits it: a blocked SIGSEGV
/// ends the process before a crash handler runs.
inline sigset_t asynchronous_signals() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
    sigdelset(&signals, fault);
  return signals;
}

/// While it lives, its thread and threads started there take no asynchronous signal: the program's
/// own threads handle them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    const sigset_t signals = asynchronous_signals();
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_thread(std::string_view place,
                                                                 const std::system_error& error) {
  throw Error({place, ": no thread can be started (", error.code().message(),
               "); raise the limit of threads (ulimit -u, or pids.max of the container), or free "
               "memory"});
}

/// Forks without exec between the process of the first call and this one.
inline int forks() {
  static int count = 0;
  static const int status = pthread_atfork(nullptr, nullptr, [] { ++count; });
  static_cast<void>(status);
  return count;
}

/// The process in which an object was made that has threads or connections. As a deleter, it leaves
/// the object alone in a forked child, which has a copy of the object but not of its threads, and
/// whose connections are the parent's.
class OwningProcess {
 public:
  /// \throws UsageError, which begins with `place`, in a forked child.
  void check(std::string_view place) const {
    if (forks() != forks_)
      throw UsageError({place,
                        ": this process was forked from the one that made the model, and a fork "
                        "copies no threads; make the model in this process"});
  }
  template <class T>
  void operator()(T* object) const {
    if (forks() == forks_) delete object;
  }

 private:
  int forks_ = forks();
};

/// \throws Error that names `place`, if the system has no thread left.
template <class F>
std::thread start_thread(std::string_view place, F&& f) {
  try {
    return std::thread([f = std::forward<F>(f)]() mutable {
      leave_place();
      f();
    });
  } catch (const std::system_error& error) {
    refuse_thread(place, error);
  }
}

}  // namespace lockstep::detail
