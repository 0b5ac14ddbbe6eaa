/// \file
/// SIGINT and SIGTERM as a stop token (POSIX). Invariants: the handler calls async-signal-safe
/// functions and lock-free atomics only; at most one SignalStop exists in a process; its destructor
/// brings back the handlers that were there before; an ignored signal stays ignored.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <thread>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace detail {
/// A stack of its own for the handlers of a thread. oneDNN's kernels (2.6) keep data far below the
/// stack pointer: a handler on the thread's stack overwrites them, and one Ctrl-C in ten ended a
/// training in a crash.
class SignalStack {
 public:
  /// For the calling thread, unless it has one.
  LOCKSTEP_COLD_DECL void enter();
  LOCKSTEP_COLD_DECL void leave();

 private:
  static constexpr std::size_t size = std::size_t{64} << 10;  // AVX-512's registers take 3 KiB
  std::unique_ptr<std::byte[]> memory_;
  std::thread::id thread_;
};
}  // namespace detail

/// While it lives, the first SIGINT or SIGTERM requests a stop; a second one ends the process as if
/// there were no handler. The same signal again within 50 ms is not a second one. A signal that is
/// ignored when the object is made stays ignored: `nohup`, and a shell that starts a program with
/// `&`, rely on it. The library never makes one: programs do, in their main thread. Other
/// handlers must run on an alternate stack, too (SA_ONSTACK), where a thread computes on `Cpu`:
/// oneDNN's kernels keep data below the stack pointer.
/// \code
///   lockstep::SignalStop stop;
///   model.fit(train, {.epochs = 3, .stop = stop.token()});
///   model.save_weights("weights.safetensors");
///   return stop.signal() ? 128 + stop.signal() : 0;          // 130 after Ctrl-C
/// \endcode
class SignalStop {
 public:
  /// \throws UsageError if there is one already, Error if the system has no descriptor or thread.
  LOCKSTEP_COLD_DECL SignalStop();
  LOCKSTEP_COLD_DECL ~SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  /// The signal that came, 0 if none did.
  LOCKSTEP_COLD_DECL int signal() const;

 private:
  static constexpr std::array<int, 2> signals{SIGINT, SIGTERM};

  LOCKSTEP_COLD_DECL void start();
  /// A wake-up may be left over from a SignalStop before, so the state decides, not the byte.
  LOCKSTEP_COLD_DECL static void watch(std::stop_source& source);
  LOCKSTEP_COLD_DECL static void wake();
  [[noreturn]] LOCKSTEP_COLD_DECL static void fail(const char* what);

  std::stop_source source_;
  std::thread thread_;
  detail::SignalStack stack_;
  std::array<struct ::sigaction, 2> before_{};
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/signal_stop.ipp"
#endif
