/// \file
/// One source of a job description: a launcher's variables, TF_CONFIG, the program. Invariant: a
/// source whose `missing` is empty has 1 to 1,000,000 ranks and, if its rank is set, one below
/// that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/host_port.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/description/spec.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

inline constexpr std::size_t max_world_size = 1'000'000;

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
[[gnu::cold]] inline void check_ranks(const ClusterSource& source, std::string_view rank_name,
                                      std::string_view world_name) {
  if (source.world_size == 0)
    throw ClusterError("{}: {} is 0; it must be at least 1", source.name, world_name);
  if (source.world_size > max_world_size)
    throw ClusterError("{}: {}={} is too large; the maximum is {}", source.name, world_name,
                       source.world_size, max_world_size);
  if (source.rank && *source.rank >= source.world_size)
    throw ClusterError("{}: {}={} is out of range for {}={}; ranks go from 0 to {}", source.name,
                       rank_name, *source.rank, world_name, source.world_size,
                       source.world_size - 1);
  if (source.local_rank && source.local_size && *source.local_rank >= *source.local_size)
    throw ClusterError(
        "{}: local rank {} is out of range for local size {}; restart the job with its "
        "launcher",
        source.name, *source.local_rank, *source.local_size);
}

/// Sets `chief_host` from the variable `name`, if that is set. \throws ClusterError
[[gnu::cold]] inline void read_host(ClusterSource& source, const Environment& environment,
                                    const std::string& name) {
  if (const auto host = variable(environment, name))
    source.chief_host =
        checked_host(*host, format_text("{}: {}={}", source.name, name, quote(*host)));
  else if (environment(name))
    source.empty_host = name;
}

/// Sets `chief_port` from the variable `name`, if that is set; then no other port is tried. \throws
/// ClusterError
[[gnu::cold]] inline void read_port(ClusterSource& source, const Environment& environment,
                                    const std::string& name) {
  const auto port = variable(environment, name);
  if (!port) return;
  source.chief_port =
      checked_port(*port, format_text("{}: {}={}", source.name, name, quote(*port)));
  source.more_ports.clear();
}

/// A port for launchers that give none: every process of a job derives the same one from the job
/// number. 61440 to 65535, above the ports that Linux gives to outgoing connections.
[[gnu::cold]] inline std::uint16_t job_port(std::uint64_t job) {
  return static_cast<std::uint16_t>(job % 4096 + 61'440);
}

/// FNV-1a, which is the same on all machines.
[[gnu::cold]] inline std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
  return hash ^ (hash >> 32);
}

/// Sets `chief_port`, unless it is set, and `more_ports`, all derived from `job_id`: two jobs that
/// share one port rarely share the next. Without effect if there is no `job_id`.
[[gnu::cold]] inline void derive_ports(ClusterSource& source) {
  constexpr std::size_t others = 3;
  if (source.job_id.empty()) return;
  for (int i = 0; source.more_ports.size() < others; ++i) {
    const std::uint16_t port = job_port(stable_hash(format_text("{}/{}", source.job_id, i)));
    const auto& known = source.more_ports;
    if (!source.chief_port)
      source.chief_port = port;
    else if (port != source.chief_port &&
             std::find(known.begin(), known.end(), port) == known.end())
      source.more_ports.push_back(port);
  }
}

/// Rank 0 must run on the chief's node, if both are known. \throws ClusterError with the node that it
/// runs on.
[[gnu::cold]] inline void check_chief_node(const ClusterSource& source) {
  if (source.rank != std::size_t{0} || source.node.empty() || source.chief_list.empty() ||
      source.world_size == 1 || source.node == source.chief_host)
    return;
  throw ClusterError(
      "{}: rank 0 is on {}, not on {}, the first host of {}; set LOCKSTEP_COORDINATOR={}:{} on all "
      "ranks",
      source.name, source.node, *source.chief_host, source.chief_list, source.node,
      *source.chief_port);
}

}  // namespace lockstep::detail
