/// \file
/// Clocks and sleeps of the simulated kernel.
#pragma once

#include <sys/time.h>
#include <time.h>  // NOLINT(modernize-deprecated-headers): POSIX
#include <unistd.h>

#include <cerrno>

#include "lockstep/testing/kernel/next_call.hpp"
#include "lockstep/testing/kernel/simulation.hpp"

namespace lockstep::testing::detail {
namespace {

/// Reading a clock takes time, so that a loop that waits for a time ends.
constexpr SimTime clock_cost = 50;

SimTime charged_clock(int clock) {
  scheduler->charge(clock_cost);
  return read_clock(clock);
}

int sleep_until(SimTime deadline) {
  if (deadline > scheduler->thread_time()) scheduler->block(deadline, "a time");
  return 0;
}

}  // namespace
}  // namespace lockstep::testing::detail

#pragma GCC visibility push(default)
extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread || !is_simulated_clock(clock)) return LOCKSTEP_NEXT(clock_gettime)(clock, time);
  *time = timespec_of(charged_clock(clock));
  return 0;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(gettimeofday)(time, zone);
  const timespec now = timespec_of(charged_clock(CLOCK_REALTIME));
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* result) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(time)(result);
  // OpenSSL asks at times that depend on earlier runs, so the first calls are free.
  constexpr int most_free = 1000;
  if (++this_thread->free_calls > most_free) scheduler->charge(clock_cost);
  const time_t now = read_clock(CLOCK_REALTIME) / second;
  if (result != nullptr) *result = now;
  return now;
}

int nanosleep(const timespec* span, timespec* left) {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(nanosleep)(span, left);
  return sleep_until(time_after(span_of(*span)));
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* span, timespec* left) {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(clock_nanosleep)(clock, flags, span, left);
  return sleep_until((flags & TIMER_ABSTIME) != 0 ? time_at(clock, *span)
                                                  : time_after(span_of(*span)));
}

int usleep(useconds_t span) {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(usleep)(span);
  return sleep_until(time_after(span * microsecond));
}

unsigned sleep(unsigned span) {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(sleep)(span);
  sleep_until(time_after(span * second));
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
