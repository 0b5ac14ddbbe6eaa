#pragma once

#include "lockstep/cluster/source.hpp"

#include "lockstep/cluster/host_port.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
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
        checked_host(*host, fmt::format("{}: {}={}", source.name, name, quote(*host)));
  else if (environment(name))
    source.empty_host = name;
}

void read_port(ClusterSource& source, const Environment& environment, const std::string& name) {
  if (const auto port = variable(environment, name))
    source.chief_port =
        checked_port(*port, fmt::format("{}: {}={}", source.name, name, quote(*port)));
}

std::uint16_t job_port(std::uint64_t job) {
  return static_cast<std::uint16_t>(job % 4096 + 61'440);
}

}  // namespace lockstep::detail
