/// \file
/// What one source (a launcher, TF_CONFIG, ...) says about the job. Invariant: a source without
/// `missing` has a world of 1 to 1,000,000 and, if it has a rank, one inside of that world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/spec.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

struct ClusterSource {
  std::string name{};     ///< for people: "torchrun", "TF_CONFIG"
  std::string missing{};  ///< what it lacks to describe a job, a sentence; empty: it is complete
  std::string job_id{};   ///< empty: it gives none
  std::size_t world_size = 0;
  std::optional<std::size_t> rank{};
  std::optional<std::string> chief_host{};
  std::optional<std::uint16_t> chief_port{};
  std::optional<std::size_t> local_rank{}, local_size{};
  std::optional<ClusterSpec> cluster{};  ///< where it knows all addresses
  std::vector<std::string> notes{};
};

/// Refuses numbers that contradict each other. The names are those of the variables.
/// \throws ClusterError
LOCKSTEP_COLD_DECL void check_ranks(const ClusterSource& source, std::string_view rank_name,
                                    std::string_view world_name);

LOCKSTEP_COLD_DECL void read_host(ClusterSource& source, const Environment& environment,
                                  const std::string& name);

LOCKSTEP_COLD_DECL void read_port(ClusterSource& source, const Environment& environment,
                                  const std::string& name);

/// For launchers that give no address: on one machine the chief is at hand, and the port comes from
/// a number that all processes of the job share, from the upper end of the ephemeral ports.
LOCKSTEP_COLD_DECL std::uint16_t job_port(std::uint64_t job);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/source.ipp"
#endif
