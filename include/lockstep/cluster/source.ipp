#pragma once

#include "lockstep/cluster/source.hpp"

#include <algorithm>

#include "lockstep/cluster/host_port.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

inline constexpr std::size_t max_world_size = 1'000'000;

void check_ranks(const ClusterSource& source, std::string_view rank_name,
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

void read_host(ClusterSource& source, const Environment& environment, const std::string& name) {
  if (const auto host = variable(environment, name))
    source.chief_host =
        checked_host(*host, format_text("{}: {}={}", source.name, name, quote(*host)));
  else if (environment(name))
    source.empty_host = name;
}

void read_port(ClusterSource& source, const Environment& environment, const std::string& name) {
  const auto port = variable(environment, name);
  if (!port) return;
  source.chief_port =
      checked_port(*port, format_text("{}: {}={}", source.name, name, quote(*port)));
  source.more_ports.clear();
}

std::uint16_t job_port(std::uint64_t job) {
  return static_cast<std::uint16_t>(job % 4096 + 61'440);
}

std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
  return hash ^ (hash >> 32);
}

void derive_ports(ClusterSource& source) {
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

void check_chief_node(const ClusterSource& source) {
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
