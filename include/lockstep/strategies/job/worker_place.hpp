/// \file
/// Where the workers of a job run, and which of them share cores and devices. Invariant: the
/// assignment depends only on the list of places, so all workers compute the same.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/process/cores.hpp"

namespace lockstep::detail {

/// A worker's replicas, and the machine, cores and devices that they run on.
struct WorkerPlace {
  std::size_t replicas = 0;   ///< 0: one per device of its share, see `share_devices`
  std::size_t threads = 0;    ///< per replica; 0: its share of the cores
  bool binds = false;         ///< its replicas may be bound to cores
  std::string machine{};      ///< the kernel's boot id; the receiver appends the worker's address
  std::string cores{};        ///< the affinity mask as Cores::bits()
  std::string devices = "-";  ///< names of the visible devices, comma-separated; "-": the cores
  /// The index, among the sorted names, of its first replica's device; the next replicas get the
  /// next devices.
  std::size_t first_device = 0;
  /// Whether its devices can exchange with those of other workers without the help of the CPUs.
  bool devices_connect = false;

  /// The place of this process, with its boot id and affinity mask.
  LOCKSTEP_COLD_DECL static WorkerPlace here(std::size_t replicas, std::size_t threads,
                                             bool may_bind, const std::string& devices = "-");

  /// The form in which it is sent to the other workers: seven words separated by spaces.
  LOCKSTEP_COLD_DECL std::string text() const;
  /// The inverse of `text`; nullopt if the text is malformed.
  LOCKSTEP_COLD_DECL static std::optional<WorkerPlace> parse(const std::string& text);
  /// The number of cores in `cores`.
  LOCKSTEP_COLD_DECL std::size_t core_count() const;
  LOCKSTEP_COLD_DECL std::vector<std::string> device_names() const;
  LOCKSTEP_COLD_DECL std::vector<std::string> sorted_names() const;
  /// The index in `devices` of the i-th replica's device, modulo the number of devices.
  LOCKSTEP_COLD_DECL std::size_t device(std::size_t i) const;
  /// Whether both run on one machine and may use a common core.
  LOCKSTEP_COLD_DECL bool shares_cores_with(const WorkerPlace& other) const;
};

/// Assigns devices to workers that see the same ones: each starts after the replicas of the workers
/// before it. A worker that did not specify its number of replicas gets one per device of its
/// share, at least one. Device names are unique across machines.
LOCKSTEP_COLD_DECL void share_devices(std::span<WorkerPlace> places);

/// The replicas of a job that share cores with one worker.
struct CoreSharers {
  std::size_t replicas = 0;    ///< including the worker's own
  std::size_t first = 0;       ///< the index of the worker's first replica among them
  bool is_one_machine = true;  ///< the whole job runs on the worker's machine
  bool bind = true;            ///< each replica is to be bound to its share of the cores

  LOCKSTEP_COLD_DECL CoreSharers(std::span<const WorkerPlace> places, std::size_t rank);

  /// The cores of the worker's i-th replica.
  Cores cores(std::size_t i) const { return Cores::of_process().share(replicas, first + i); }
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/job/worker_place.ipp"
#endif
