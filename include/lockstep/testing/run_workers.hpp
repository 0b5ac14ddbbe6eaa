/// \file
/// A cluster in one process, for tests: workers with the real rendezvous and collectives, over a
/// simulated network in virtual time. Invariants: of all threads of the workers one runs at a time;
/// the seed decides every choice, so that a failure can be repeated; a run does not depend on the
/// speed of the machine; outside of `run_workers` nothing is simulated.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/testing/simulated_network.hpp"

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error "lockstep/testing.hpp: link lockstep::compiled_testing instead of lockstep::testing"
#endif

namespace lockstep::testing {

/// One life of a worker, as its body sees it.
class Worker {
 public:
  Worker(std::size_t rank, std::size_t size, std::size_t life, Environment environment)
      : rank_(rank), size_(size), life_(life), environment_(std::move(environment)) {}

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }
  /// How often this worker has been restarted.
  std::size_t life() const { return life_; }
  /// The variables of the job, for `MultiWorkerMirrored::environment`.
  const Environment& environment() const { return environment_; }
  /// The IPv4 address of its machine: 10.0.0.1 for rank 0.
  std::string address() const;
  /// Virtual time since the start, the same on all workers.
  std::chrono::nanoseconds time() const;
  /// Uses processor time of this worker: other code takes none.
  void compute(std::chrono::nanoseconds time) const;
  /// Makes a fault happen now.
  void inject(const Fault& fault) const;

 private:
  std::size_t rank_, size_, life_;
  Environment environment_;
};

/// The results of a simulation.
struct Report {
  std::chrono::nanoseconds duration{};  ///< virtual
  std::uint64_t digest = 0;             ///< of all packets and their times: equal for equal runs
  std::uint64_t packets = 0, lost = 0;
  std::uint64_t switches = 0;  ///< between threads
};

/// Runs `body` as `count` workers, each on a machine of its own, and returns when all have ended.
///
/// Sockets, clocks, sleeps, threads, locks and condition variables of the bodies are simulated;
/// files are real. Each worker has its own process id and machine, with a folder for the votes of an
/// elastic job, but global variables are shared.
/// Code takes no virtual time, except for system calls (1 us) and `Worker::compute`.
/// \throws the first exception that left a body; Error if no thread can run and nothing is on its
/// way (a deadlock), or if the limit of virtual time has passed, with a list of the threads;
/// UsageError if LOCKSTEP_WAIT_POLICY is not passive, or if a simulation runs already.
/// \code
///   ls::testing::run_workers(4, [](ls::testing::Worker& worker) {
///     ls::Model model{Net{}, ls::MultiWorkerMirrored<ls::Cpu>{.on = {.threads = 1},
///                                                             .environment = worker.environment()},
///                     ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
///     model.fit(data(), {.epochs = 1});
///   });
/// \endcode
Report run_workers(std::size_t count, const std::function<void(Worker&)>& body,
                   const Network& network = {});

}  // namespace lockstep::testing
