#pragma once

#include "lockstep/training/signal_stop.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/core/process/standard_streams.hpp"
#include "lockstep/core/process/stop_of_process.hpp"
#include "lockstep/core/process/threads.hpp"

namespace lockstep::detail {

/// State shared with the handler; global, since a handler gets no user argument. The pipe stays
/// open until the process ends: a handler may still run in another thread after SignalStop's
/// destructor.
struct SignalState {
  std::atomic<bool> in_use{false}, quit{false};
  std::atomic<int> signal{0};         // the first one received
  std::atomic<int> agreed{0};         // the one that stopped the job
  std::atomic<std::int64_t> came{0};  // time of the first signal, in ns; 0: none
  std::array<int, 2> pipe{-1, -1};
  int reported() const {
    const int of_job = agreed;
    return of_job != 0 ? of_job : signal.load();
  }
  static_assert(std::atomic<int>::is_always_lock_free &&
                std::atomic<std::int64_t>::is_always_lock_free);
};

/// One per process, like signal handlers; visible to all shared objects, see `log_state`.
[[gnu::visibility("default")]] inline SignalState signal_state;

/// Some senders, such as GNU timeout, signal a process and then its group: both count as one.
inline constexpr std::int64_t one_press = 50'000'000;  // ns

inline std::int64_t signal_clock() {
  ::timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline void on_stop_signal(int signal) {
  const int error = errno;
  const std::int64_t now = signal_clock();
  std::int64_t came = 0;
  if (signal_state.came.compare_exchange_strong(came, now)) {
    signal_state.signal = signal;
  } else if (const int first = signal_state.signal;
             (first != 0 && first != signal) || now - came > one_press) {
    // The second signal: restore the default action and raise the signal again.
    struct ::sigaction fallback{};
    fallback.sa_handler = SIG_DFL;
    ::sigaction(signal, &fallback, nullptr);
    ::sigset_t this_one;
    ::sigemptyset(&this_one);
    ::sigaddset(&this_one, signal);
    ::pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
    ::raise(signal);
  }
  const char wake = 0;
  [[maybe_unused]] const ssize_t n = ::write(signal_state.pipe[1], &wake, 1);
  errno = error;
}

void SignalStack::enter() {
  ::stack_t stack{};
  if (::sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  memory_ = std::make_unique<std::byte[]>(size);
  stack = {};
  stack.ss_sp = memory_.get();
  stack.ss_size = size;
  if (::sigaltstack(&stack, nullptr) != 0) memory_.reset();
  thread_ = std::this_thread::get_id();
}

void SignalStack::leave() {
  if (!memory_) return;
  ::stack_t none{};
  none.ss_flags = SS_DISABLE;
  // Only its own thread can remove an alternate stack; otherwise the memory must stay allocated.
  if (thread_ != std::this_thread::get_id() || ::sigaltstack(&none, nullptr) != 0)
    static_cast<void>(memory_.release());
  memory_.reset();
}

int reported_signal() { return signal_state.in_use ? signal_state.reported() : 0; }

int reported_signal(const std::stop_token& token) {
  return token == stop_of_process.token() ? reported_signal() : 0;
}

void adopt_signal(int signal) {
  if (!signal_state.in_use) return;
  signal_state.agreed = signal;
  const char wake = 0;
  [[maybe_unused]] const ssize_t n = ::write(signal_state.pipe[1], &wake, 1);
}

}  // namespace lockstep::detail

namespace lockstep {

SignalStop::SignalStop() {
  auto& state = detail::signal_state;
  if (state.in_use.exchange(true))
    throw UsageError("signal stop: the process already has one; share its token()");
  try {
    start();
  } catch (...) {
    state.in_use = false;
    throw;
  }
}

SignalStop::~SignalStop() {
  for (std::size_t i = 0; i < before_.size(); ++i)
    if (before_[i].sa_handler != SIG_IGN)
      ::sigaction(detail::stop_signals[i], &before_[i], nullptr);
  stack_.leave();
  detail::signal_state.quit = true;
  wake();
  thread_.join();
  detail::stop_of_process.set({}, nullptr);
  detail::signal_state.in_use = false;
}

int SignalStop::signal() const { return detail::signal_state.reported(); }

void SignalStop::start() {
  auto& state = detail::signal_state;
  const std::vector<int> handled = detail::handled_signals(std::getenv("LOCKSTEP_STOP_SIGNALS"));
  if (state.pipe[0] < 0) {
    detail::reserve_standard_streams();
    if (::pipe(state.pipe.data()) != 0) fail("cannot create a pipe");
    for (const int end : state.pipe) ::fcntl(end, F_SETFD, FD_CLOEXEC);
    ::fcntl(state.pipe[1], F_SETFL, O_NONBLOCK);  // a handler must not block
  }
  state.quit = false;
  state.signal = 0;
  state.agreed = 0;
  state.came = 0;
  detail::stop_of_process.set(token(), [] { return detail::reported_signal(); });
  thread_ = detail::start_thread("signal stop", [source = source_]() mutable { watch(source); });
  stack_.enter();
  struct ::sigaction action{};
  action.sa_handler = &detail::on_stop_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  action.sa_mask = detail::asynchronous_signals();
  for (std::size_t i = 0; i < before_.size(); ++i) {
    const int signal = detail::stop_signals[i];
    ::sigaction(signal, nullptr, &before_[i]);
    if (std::find(handled.begin(), handled.end(), signal) == handled.end())
      before_[i].sa_handler = SIG_IGN;
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

void SignalStop::watch(std::stop_source& source) {
  auto& state = detail::signal_state;
  while (!state.quit) {
    char byte = 0;
    if (::read(state.pipe[0], &byte, 1) < 0 && errno != EINTR) return;
    if (state.reported() != 0) source.request_stop();
  }
}

void SignalStop::wake() {
  const char byte = 0;
  [[maybe_unused]] const ssize_t n = ::write(detail::signal_state.pipe[1], &byte, 1);
}

void SignalStop::fail(const char* what) {
  throw Error("signal stop: {} ({}); raise the limit on open files", what,
              std::generic_category().message(errno));
}

}  // namespace lockstep
