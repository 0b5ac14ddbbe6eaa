/// \file
/// SIGINT, SIGTERM and SIGHUP as a stop token (POSIX). Invariants: the handler calls async-signal-safe
/// functions and lock-free atomics only; at most one SignalStop exists in a process; its destructor
/// restores the previous handlers; an ignored signal stays ignored.
///
///     signal --> handler: first signal --> byte into the pipe --> watch thread: request_stop()
///                         second one   --> default action, ends the process
///
/// request_stop() runs arbitrary callbacks, hence the thread: a handler may not call it.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <thread>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/process/stop_of_process.hpp"  // outlives a SignalStop that is a global variable
#include "lockstep/core/process/stop_signals.hpp"

namespace lockstep {

namespace detail {
/// An alternate signal stack (sigaltstack) for a thread. oneDNN's kernels (2.6) keep data far below
/// the stack pointer, where a handler on the thread's own stack would overwrite them: one Ctrl-C in
/// ten crashed a training run.
class SignalStack {
 public:
  /// Installs the stack for the calling thread, unless the thread already has one.
  LOCKSTEP_COLD_DECL void enter();
  /// Removes the stack. If called by another thread, leaks the memory instead.
  LOCKSTEP_COLD_DECL void leave();

 private:
  // Bytes. The kernel saves the registers here, with AVX-512 about 3 KiB.
  static constexpr std::size_t size = std::size_t{64} << 10;
  std::unique_ptr<std::byte[]> memory_;
  std::thread::id thread_;
};

/// The signal that the process' SignalStop reports; 0 if none, or without a SignalStop.
LOCKSTEP_COLD_DECL int reported_signal();
/// The same, but 0 if `token` is not that of the SignalStop.
LOCKSTEP_COLD_DECL int reported_signal(const std::stop_token& token);
/// Makes this process' SignalStop report the signal that stopped the job, even if the process
/// itself has received another one, and request a stop. A signal that this process receives later
/// still counts as its first.
LOCKSTEP_COLD_DECL void adopt_signal(int signal);
}  // namespace detail

/// Requests a stop at the first SIGINT, SIGTERM or SIGHUP during its lifetime. SIGHUP arrives when a
/// terminal closes or an ssh connection ends. LOCKSTEP_STOP_SIGNALS=USR1 adds SIGUSR1, for schedulers
/// that send it before a time limit; USR2 and USR1,USR2 are possible as well.
///
/// A second signal ends the process as if there were no handler; the same signal again within 50 ms
/// does not count. A signal that is ignored when the object is created stays ignored: `nohup`, and
/// a shell that starts a program with `&`, rely on that. The library never creates a SignalStop;
/// programs do, in their main thread. Other handlers must also run on an alternate stack
/// (SA_ONSTACK) if the thread computes on `Cpu`: oneDNN's kernels keep data below the stack
/// pointer.
/// \code
///   lockstep::SignalStop stop;
///   model.fit(train, {.epochs = 3, .stop = stop.token()});
///   model.save_weights("weights.safetensors");
///   return stop.signal() ? 128 + stop.signal() : 0;          // 130 after Ctrl-C
/// \endcode
class SignalStop {
 public:
  /// \throws UsageError if the process already has one or LOCKSTEP_STOP_SIGNALS is invalid, Error if
  /// the system is out of descriptors or threads.
  LOCKSTEP_COLD_DECL SignalStop();
  LOCKSTEP_COLD_DECL ~SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  /// The signal that ended `fit`, `evaluate` or `predict` of a job of several processes, the same in
  /// all of them: SIGTERM if several received different ones. Otherwise the first signal received by
  /// this process; 0 if none.
  LOCKSTEP_COLD_DECL int signal() const;

 private:
  LOCKSTEP_COLD_DECL void start();
  /// Body of the thread. Checks the state, not the byte read: an earlier SignalStop may have left a
  /// byte in the pipe.
  LOCKSTEP_COLD_DECL static void watch(std::stop_source& source);
  LOCKSTEP_COLD_DECL static void wake();
  [[noreturn]] LOCKSTEP_COLD_DECL static void fail(const char* what);

  std::stop_source source_;
  std::thread thread_;
  detail::SignalStack stack_;
  /// By stop signal; SIG_IGN for those that are not handled.
  std::array<struct ::sigaction, detail::stop_signals.size()> before_{};
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/signal_stop.ipp"
#endif
