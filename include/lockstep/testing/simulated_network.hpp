/// \file
/// The network of a simulated cluster and the faults that happen in it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Something that happens to a simulated cluster. Made by the functions below.
struct Fault {
  enum class Kind {
    kill,
    restart,
    freeze,
    thaw,
    cut,
    heal,
    slow,
    jump_clock,
    loss,
    latency,
    jitter
  };
  Kind kind{};
  std::vector<std::size_t> first{}, second{};  ///< ranks
  double factor = 1;
  std::chrono::nanoseconds time{};
};

/// Ends a worker's process as `kill -9` does: its connections are closed or reset, its files are
/// unlocked, its threads never run again. Their memory is not freed.
Fault kill(std::size_t rank);
/// Starts the body of a killed worker, or of one that has returned, again.
Fault restart(std::size_t rank);
/// Stops a worker's threads, as SIGSTOP does. Its machine still acknowledges what it receives.
Fault freeze(std::size_t rank);
/// Continues a frozen worker, as SIGCONT does.
Fault thaw(std::size_t rank);
/// Loses everything between the machines of two sets of ranks, in both directions.
Fault partition(std::vector<std::size_t> some, std::vector<std::size_t> others);
/// Loses what the machine of `from` sends to that of `to`.
Fault cut(std::size_t from, std::size_t to);
/// Ends all partitions and cuts.
Fault heal();
/// Multiplies the processor time of a worker: of its system calls, and of `Worker::compute`.
Fault slow(std::size_t rank, double factor);
/// Changes the system clock of a worker's machine.
Fault jump_clock(std::size_t rank, std::chrono::nanoseconds by);
/// Changes Network::loss from now on.
Fault set_loss(double probability);
/// Changes Network::latency from now on.
Fault set_latency(std::chrono::nanoseconds latency);
/// Changes Network::jitter from now on.
Fault set_jitter(std::chrono::nanoseconds jitter);

/// A fault and its virtual time, counted from the start.
struct TimedFault {
  std::chrono::nanoseconds at{};
  Fault fault{};
};

/// The options of a simulated cluster. All times are virtual.
/// \code
///   ls::testing::Network{.seed = 7, .latency = 1ms, .faults = {{2s, ls::testing::kill(3)}}}
/// \endcode
struct Network {
  /// Decides the order of threads, losses and jitter: a run with the same seed is the same.
  std::uint64_t seed = 0;
  std::chrono::nanoseconds latency = std::chrono::microseconds(50);  ///< of each packet, one way
  std::chrono::nanoseconds jitter{0};  ///< up to this is added to the latency
  double bytes_per_second = 0;         ///< of each machine's network card; 0: not limited
  /// The probability with which a segment, of up to 64 KiB, is lost and must be sent again.
  double loss = 0;
  std::vector<TimedFault> faults{};
  std::chrono::nanoseconds limit = std::chrono::hours(1);  ///< a longer run fails
  /// Environment variables of all workers, in addition to those of the job. "{rank}" in a value
  /// stands for the worker's rank.
  std::map<std::string, std::string> variables{};
};

}  // namespace lockstep::testing
