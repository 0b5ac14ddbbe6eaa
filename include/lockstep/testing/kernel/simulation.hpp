/// \file
/// The state of a simulation: its threads, its network, its descriptors and its locks.
#pragma once

#include <time.h>  // NOLINT(modernize-deprecated-headers): POSIX

#include <memory>
#include <unordered_map>
#include <vector>

#include "lockstep/testing/kernel/file.hpp"
#include "lockstep/testing/kernel/scheduler.hpp"
#include "lockstep/testing/kernel/tcp_socket.hpp"

namespace lockstep::testing::detail {

struct Simulation {
  Simulation(std::uint64_t seed, std::size_t machines, SimTime limit,
             const SimNetwork::Options& options)
      : threads(seed, machines, limit), network(options, machines), entropy(~seed) {
    threads.on_exit = [this](SimProcess& process) { end(process); };
  }

  /// Adds the calling thread to those that wait at an address: of a mutex, a condition, a
  /// semaphore, a futex.
  void enter_queue(const void* address) { waits[address].push_back(this_thread); }
  void leave_queue(const void* address);
  /// Waits there. \return false if the deadline has passed.
  bool wait_at(const void* address, SimTime deadline, const char* what);
  /// Wakes up to `most` threads. \return their number.
  std::size_t wake_at(const void* address, std::size_t most);
  /// Closes what the process has open.
  void end(SimProcess& process);

  Scheduler threads;
  SimNetwork network;
  Descriptors files;
  std::unordered_map<const void*, WaitQueue> waits;
  SimRandom entropy;               ///< of std::random_device
  std::vector<const void*> onces;  ///< controls of pthread_once whose functions run
};

/// The simulation of this program; null if none runs.
extern Simulation* simulation;

/// The system time at the start of a simulation, in seconds since 1970: 2026-01-01.
inline constexpr SimTime epoch = 1'767'225'600;

/// The value of a clock in the calling thread, as the simulated kernel shows it.
SimTime read_clock(int clock);
/// Whether the clock shows virtual time.
bool is_simulated_clock(int clock);
/// The virtual time at which `clock` shows `time`.
SimTime time_at(int clock, const timespec& time);
/// The virtual time after `span` has passed.
SimTime time_after(SimTime span);
inline SimTime span_of(const timespec& span) { return span.tv_sec * second + span.tv_nsec; }
inline timespec timespec_of(SimTime time) {
  return {static_cast<time_t>(time / second), static_cast<long>(time % second)};
}

}  // namespace lockstep::testing::detail
