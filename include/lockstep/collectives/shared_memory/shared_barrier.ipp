#pragma once

#include "lockstep/collectives/shared_memory/shared_barrier.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <thread>

#include "lockstep/collectives/algorithms/spin.hpp"
#include "lockstep/core/process/suspended_time.hpp"

namespace lockstep::detail {

SharedBarrier::SharedBarrier(BarrierState& state, const Options& options)
    : state_(state), options_(options) {
  // A deadline, now + timeout, must not overflow.
  options_.timeout = std::min<std::chrono::nanoseconds>(options.timeout, std::chrono::hours(8760));
}

SharedBarrier::Result SharedBarrier::wait(std::chrono::nanoseconds more) {
  if (has_ended()) return Result::ended;
  state_.members[rank()].arrivals.store(passed() + 1, std::memory_order_relaxed);
  if (state_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    state_.arrived.store(0, std::memory_order_relaxed);
    std::uint32_t expected = phase();
    if (!state_.word.compare_exchange_strong(expected, (expected + 1) & 0xffffu)) return pass();
    wake_sleepers();
    return pass();
  }
  const auto has_changed = [&] { return state_.word.load(std::memory_order_acquire) != phase(); };
  if (spin_until(options_.spins, has_changed)) return pass();
  waits_.store(true, std::memory_order_relaxed);
  const Result result = sleep(timeout() + more);
  waits_.store(false, std::memory_order_relaxed);
  return result;
}

/// After a change of the word: it advanced, perhaps before it ended, or it ended.
SharedBarrier::Result SharedBarrier::pass() {
  if (phase_of(state_.word.load(std::memory_order_acquire)) == phase()) return Result::ended;
  passed_.fetch_add(1, std::memory_order_relaxed);
  return Result::passed;
}

SharedBarrier::Result SharedBarrier::sleep(std::chrono::nanoseconds limit) {
  if (wait_while_running(limit, [&](auto time) { return sleep_until(time); })) return pass();
  const std::vector<std::size_t> absent = missing();
  std::uint32_t expected = phase();
  // Nobody is absent if the last member was stopped before it advanced the phase.
  const auto absentee = static_cast<std::uint32_t>(absent.empty() ? rank() : absent.front());
  const auto cause = static_cast<std::uint32_t>(Shutdown::Cause::timed_out);
  if (!state_.word.compare_exchange_strong(expected, cause << 24 | absentee << 16 | expected))
    return pass();
  wake_sleepers();
  return Result::timed_out;
}

bool SharedBarrier::sleep_until(std::chrono::steady_clock::time_point deadline) {
  using clock = std::chrono::steady_clock;
  static_assert(sizeof state_.word == sizeof(std::uint32_t));
  const auto has_changed = [&] { return state_.word.load() != phase(); };
  // Sequentially consistent, so that either this thread sees the new word or its writer sees the
  // sleeper. A sleeper that is killed stays counted, which only costs others a system call.
  state_.sleepers.fetch_add(1);
  while (!has_changed()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) break;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const std::timespec limit{seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
    const long result = ::syscall(SYS_futex, &state_.word, FUTEX_WAIT, phase(), &limit, nullptr, 0);
    if (result != 0 && (errno == ENOSYS || errno == EPERM))  // a sandbox without futexes
      std::this_thread::sleep_for(std::min<clock::duration>(left, std::chrono::milliseconds(1)));
  }
  state_.sleepers.fetch_sub(1);
  return has_changed();
}

void SharedBarrier::wake_sleepers() {
  if (state_.sleepers.load() > 0)
    ::syscall(SYS_futex, &state_.word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedBarrier::end(Shutdown::Cause cause, std::size_t rank) {
  set_end(static_cast<std::uint32_t>(cause), rank);
}

void SharedBarrier::set_end(std::uint32_t cause, std::size_t rank) {
  std::uint32_t word = state_.word.load();
  const std::uint32_t why = cause << 24 | static_cast<std::uint32_t>(rank) << 16;
  while (word >> 24 == 0)
    if (state_.word.compare_exchange_weak(word, why | phase_of(word))) break;
  wake_sleepers();
}

void SharedBarrier::end(const Shutdown& why) {
  auto none = BarrierState::Known::nothing;
  if (state_.known.compare_exchange_strong(none, BarrierState::Known::partly)) {
    state_.shutdown = why;
    state_.known.store(BarrierState::Known::shutdown, std::memory_order_release);
  }
  set_end(elsewhere | static_cast<std::uint32_t>(why.cause), rank());
}

std::optional<Shutdown> SharedBarrier::shutdown() const {
  const auto is_known = [&] {
    return state_.known.load(std::memory_order_acquire) == BarrierState::Known::shutdown;
  };
  // Bounded: a process that writes it may be killed. Not `spin_until`, which need not wait.
  for (int i = 0; i < 1000 && !is_known(); ++i) {
    if (state_.known.load(std::memory_order_relaxed) == BarrierState::Known::nothing) break;
    std::this_thread::yield();
  }
  if (!is_known()) return std::nullopt;
  return state_.shutdown;
}

BarrierEnd SharedBarrier::end() const {
  const std::uint32_t word = state_.word.load(std::memory_order_acquire);
  return {static_cast<Shutdown::Cause>(word >> 24 & ~elsewhere), word >> 16 & 0xffu,
          (word >> 24 & elsewhere) != 0};
}

std::vector<std::size_t> SharedBarrier::missing() const {
  const std::uint64_t mine = state_.members[rank()].arrivals.load(std::memory_order_relaxed);
  std::vector<std::size_t> absent;
  for (std::size_t r = 0; r < size(); ++r)
    if (state_.members[r].arrivals.load(std::memory_order_relaxed) < mine) absent.push_back(r);
  return absent;
}

ExchangeProgress SharedBarrier::progress() const {
  ExchangeProgress now{passed(), {}};
  if (!waits_.load(std::memory_order_relaxed)) return now;
  const std::vector<std::size_t> absent = missing();
  if (!absent.empty()) now.waits_for = absent.front();
  return now;
}

}  // namespace lockstep::detail
