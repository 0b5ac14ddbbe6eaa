/// \file
/// A generation of an elastic job, and what its members have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/cluster/description/elastic_options.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// The workers that train together until one is lost or added.
struct Generation {
  std::uint64_t number = 0;
  /// Ready for a Rendezvous: job id, size, rank, chief, and the addresses by rank.
  ResolvedCluster cluster{};
  std::vector<bool> is_new{};         ///< by rank; in generation 0 all are
  std::vector<std::size_t> former{};  ///< by rank: the rank in the generation before; unless new
  bool is_one_machine = true;         ///< any member decides about the next one; see Quorum
};

/// "3 workers", or "3 workers and 2 parameter servers", for the log.
[[gnu::cold]] inline std::string describe_members(const ResolvedCluster& generation) {
  if (!generation.tasks) return format_text("{} workers", generation.world_size);
  const std::size_t workers = generation.tasks->workers.count;
  const std::size_t servers = generation.tasks->servers.count;
  return format_text("{} worker{} and {} parameter server{}", workers, workers == 1 ? "" : "s",
                     servers, servers == 1 ? "" : "s");
}

/// The arguments of an ElasticMember.
struct ElasticSettings {
  Elastic options{};
  /// Settings that must be equal on all members. A process that differs is refused.
  std::vector<SignatureField> fields{};
  /// True if a generation may have this many workers. Empty: any number.
  std::function<bool(std::size_t workers)> fits{};
};

}  // namespace lockstep::detail
