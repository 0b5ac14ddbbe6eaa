#pragma once

#include "lockstep/testing/kernel/simulation.hpp"

#include <unistd.h>

#include "lockstep/testing/kernel/next_call.hpp"

namespace lockstep::testing::detail {

Simulation* simulation = nullptr;

void Simulation::leave_queue(const void* address) {
  // The queue is gone if the last thread in it was woken.
  const auto found = waits.find(address);
  if (found == waits.end()) return;
  std::erase(found->second, this_thread);
  if (found->second.empty()) waits.erase(found);
}

bool Simulation::wait_at(const void* address, SimTime deadline, const char* what) {
  enter_queue(address);
  const bool woken = threads.block(deadline, what);
  leave_queue(address);
  return woken;
}

std::size_t Simulation::wake_at(const void* address, std::size_t most) {
  const auto found = waits.find(address);
  if (found == waits.end()) return 0;
  const std::size_t count = threads.wake_some(found->second, most);
  if (found->second.empty()) waits.erase(found);
  return count;
}

void Simulation::end(SimProcess& process) {
  files.close_all(process);
  for (const int file : process.locked_files) LOCKSTEP_NEXT(close)(file);
  process.locked_files.clear();
}

bool is_simulated_clock(int clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC ||
         clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE ||
         clock == CLOCK_BOOTTIME || clock == CLOCK_TAI;
}

namespace {

SimTime offset_of(int clock) {
  const SimMachine& machine = scheduler->machine(this_thread->process->rank);
  const bool is_wall =
      clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
  return is_wall ? epoch * second + machine.wall_jump : machine.clock_offset;
}

}  // namespace

SimTime read_clock(int clock) { return scheduler->thread_time() + offset_of(clock); }

SimTime time_at(int clock, const timespec& time) {
  constexpr SimTime longest = never / second - 1;
  if (time.tv_sec >= longest) return never;
  const SimTime at = span_of(time) - offset_of(clock);
  return at < 0 ? 0 : at;
}

SimTime time_after(SimTime span) {
  const SimTime now = scheduler->thread_time();
  return span >= never - now ? never : now + span;
}

}  // namespace lockstep::testing::detail
