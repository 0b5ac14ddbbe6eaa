/// \file
/// How the processes of a job exchange data: a policy of MultiWorkerMirrored. Invariants: all ranks
/// connect the same groups; if one cannot, all throw.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/algorithms/group_options.hpp"
#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/strategies/job/worker_place.hpp"

namespace lockstep {

class Rendezvous;
struct ResolvedCluster;
namespace detail {
class JobSession;
}

/// A job whose processes have joined and are to be connected.
struct JobLinks {
  const ResolvedCluster& where;
  detail::JobSession& session;
  const std::vector<detail::WorkerPlace>& places;  ///< by rank; `machine` tells machines apart
  std::chrono::milliseconds timeout{};             ///< of an exchange without progress
  std::chrono::milliseconds start_timeout{};       ///< of a peer's next step while connecting
  SumOrder order = SumOrder::ranks;
  /// Each process sends to each other one itself, as to parameter servers.
  bool is_flat = false;
  int layer_spins = 0, gradient_spins = 0;  ///< polls before a wait sleeps, if cores are free
  bool& peers_know;  ///< set it before an error that all ranks throw, and that none need report

  LOCKSTEP_COLD_DECL Rendezvous& rendezvous() const;
  LOCKSTEP_COLD_DECL std::size_t rank() const;
  std::size_t size() const { return places.size(); }
  GroupOptions layers() const { return {0, timeout, order, layer_spins}; }
  GroupOptions gradients() const { return {1, timeout, order, gradient_spins}; }
  /// A key of the job's store that is unique to this model.
  LOCKSTEP_COLD_DECL std::string key(std::string_view what) const;
};

/// A connected job: one group for layers and one for gradients, which two threads use at once.
struct JobGroups {
  ProcessGroup layers, gradients;
};

/// `P::connect(links)` connects a job of two or more processes; `P::name` is for messages.
template <class P>
concept DataPlane = requires(const JobLinks& links) {
  { P::name } -> std::convertible_to<std::string_view>;
  { P::connect(links) } -> std::same_as<JobGroups>;
};

/// `P::connect_pairs(links, peers)`: a group of this process with each of `peers`.
template <class P>
concept ConnectsPairs = requires(const JobLinks& links, const std::vector<std::size_t>& peers) {
  { P::connect_pairs(links, peers) } -> std::same_as<std::vector<ProcessGroup>>;
};

namespace detail {
/// Whether a process can leave the connections of a plane and connect with other processes: unless
/// the plane has `static constexpr bool can_reform = false`.
template <class P>
inline constexpr bool plane_can_reform = true;
template <class P>
  requires requires { P::can_reform; }
inline constexpr bool plane_can_reform<P> = P::can_reform;
}  // namespace detail

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/job/data_plane.ipp"
#endif
