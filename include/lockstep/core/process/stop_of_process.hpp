/// \file
/// The SignalStop of this process, for waits of code that gets no token: that of a new model for
/// the other workers. Invariant: without a SignalStop no stop is requested.
#pragma once

#include <mutex>
#include <stop_token>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

/// Set by a SignalStop for its lifetime.
class StopOfProcess {
 public:
  std::stop_token token() const {
    const std::scoped_lock lock(mutex_);
    return token_;
  }
  /// The signal that it reports; 0 if none.
  int signal() const {
    const std::scoped_lock lock(mutex_);
    return signal_ != nullptr ? signal_() : 0;
  }
  void set(std::stop_token token, int (*reported)()) {
    const std::scoped_lock lock(mutex_);
    token_ = std::move(token);
    signal_ = reported;
  }

 private:
  mutable std::mutex mutex_;
  std::stop_token token_{};
  int (*signal_)() = nullptr;
};

/// One per process, like signal handlers; visible to all shared objects, see `log_state`.
[[gnu::visibility("default")]] inline StopOfProcess stop_of_process;

/// Calls f(). \throws Evicted instead of PeerLost if `signal`() is not 0: this process was asked to
/// end, and does not wait until the others are back.
template <class F, class Signal>
void or_evicted(const F& f, const Signal& signal) {
  try {
    f();
  } catch (const PeerLost& e) {
    const int number = signal();
    if (number == 0) throw;
    log(LogLevel::warning, e.what());
    throw Evicted(number);
  }
}

}  // namespace lockstep::detail
