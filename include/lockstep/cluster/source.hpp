/// \file
/// One source of a job description: a launcher's variables, TF_CONFIG, the program. Invariant: a
/// source whose `missing` is empty has 1 to 1,000,000 ranks and, if its rank is set, one below
/// that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/cluster/spec.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// A job as one source describes it.
struct ClusterSource {
  std::string name{};     ///< for messages: "torchrun", "TF_CONFIG"
  std::string missing{};  ///< what is missing, as a sentence; empty: complete
  std::string job_id{};   ///< empty: the source has none
  std::size_t world_size = 0;
  std::optional<std::size_t> rank{};
  std::optional<std::string> chief_host{};
  std::string empty_host{};  ///< the variable of the chief's host, if it is empty
  std::optional<std::uint16_t> chief_port{};
  /// Where the chief listens if another process has `chief_port`, in this order.
  std::vector<std::uint16_t> more_ports{};
  bool compares_chief_host = true;    ///< false: each rank may have its own name of rank 0's host
  std::optional<BindAddress> bind{};  ///< where rank 0 listens, if not at `chief_host`
  std::string chief_list{}, node{};   ///< the list that `chief_host` is from; this process' node
  std::optional<std::size_t> local_rank{}, local_size{};
  /// The launcher numbers its own processes, and only they have its variables (torchrun).
  bool has_own_ranks = false;
  std::optional<ClusterSpec> cluster{};  ///< if the source has all addresses
  std::vector<std::string> notes{};
};

/// Refuses ranks and sizes that contradict each other. The names are those of the variables.
/// \throws ClusterError
LOCKSTEP_COLD_DECL void check_ranks(const ClusterSource& source, std::string_view rank_name,
                                    std::string_view world_name);

/// Sets `chief_host` from the variable `name`, if that is set. \throws ClusterError
LOCKSTEP_COLD_DECL void read_host(ClusterSource& source, const Environment& environment,
                                  const std::string& name);

/// Sets `chief_port` from the variable `name`, if that is set; then no other port is tried. \throws
/// ClusterError
LOCKSTEP_COLD_DECL void read_port(ClusterSource& source, const Environment& environment,
                                  const std::string& name);

/// A port for launchers that give none: every process of a job derives the same one from the job
/// number. 61440 to 65535, above the ports that Linux gives to outgoing connections.
LOCKSTEP_COLD_DECL std::uint16_t job_port(std::uint64_t job);

/// FNV-1a, which is the same on all machines.
LOCKSTEP_COLD_DECL std::uint64_t stable_hash(std::string_view text);

/// Sets `chief_port`, unless it is set, and `more_ports`, all derived from `job_id`: two jobs that
/// share one port rarely share the next. Without effect if there is no `job_id`.
LOCKSTEP_COLD_DECL void derive_ports(ClusterSource& source);

/// Rank 0 must run on the chief's node, if both are known. \throws ClusterError with the node that it
/// runs on.
LOCKSTEP_COLD_DECL void check_chief_node(const ClusterSource& source);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/source.ipp"
#endif
