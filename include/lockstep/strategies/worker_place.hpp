/// \file
/// Where the workers of a job run, and who shares cores and devices with whom. Invariant: all
/// workers conclude the same from the same list of places.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/cores.hpp"

namespace lockstep::detail {

/// A worker's replicas, and the machine and the cores where they run.
struct WorkerPlace {
  std::size_t replicas = 0;   ///< 0: one on each device of its share, see `share_devices`
  std::size_t threads = 0;    ///< of each replica; 0: its share of the cores
  bool binds = false;         ///< its replicas may be bound to cores
  std::string machine{};      ///< the kernel's boot id; others add the address of the worker
  std::string cores{};        ///< Cores::bits()
  std::string devices = "-";  ///< names of those that it sees, with commas; "-": the cores
  /// Of its first replica, among the sorted names, if its replicas take the next ones.
  std::size_t first_device = 0;

  LOCKSTEP_COLD_DECL static WorkerPlace here(std::size_t replicas, std::size_t threads,
                                             bool may_bind, const std::string& devices = "-");

  /// As it travels to the other workers.
  LOCKSTEP_COLD_DECL std::string text() const;
  /// Nothing if it is no such text.
  LOCKSTEP_COLD_DECL static std::optional<WorkerPlace> parse(const std::string& text);
  LOCKSTEP_COLD_DECL std::size_t core_count() const;
  LOCKSTEP_COLD_DECL std::vector<std::string> device_names() const;
  LOCKSTEP_COLD_DECL std::vector<std::string> sorted_names() const;
  /// The place of the i-th replica's device in `devices`; with more replicas they begin anew.
  LOCKSTEP_COLD_DECL std::size_t device(std::size_t i) const;
  LOCKSTEP_COLD_DECL bool shares_cores_with(const WorkerPlace& other) const;
};

/// Workers that see the same devices take turns: each begins behind the replicas of those before
/// it. Who did not say how many replicas it has gets one on each device of its share, and at least
/// one. The names tell devices of different machines apart.
LOCKSTEP_COLD_DECL void share_devices(std::span<WorkerPlace> places);

/// The replicas of a job that share cores with one worker's.
struct CoreSharers {
  std::size_t replicas = 0;    ///< its own among them
  std::size_t first = 0;       ///< its first one's place among them
  bool is_one_machine = true;  ///< the whole job runs there
  bool bind = true;            ///< each is to be bound to its share of the cores

  LOCKSTEP_COLD_DECL CoreSharers(std::span<const WorkerPlace> places, std::size_t rank);

  /// The share of the worker's i-th replica.
  Cores cores(std::size_t i) const { return Cores::of_process().share(replicas, first + i); }
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/worker_place.ipp"
#endif
