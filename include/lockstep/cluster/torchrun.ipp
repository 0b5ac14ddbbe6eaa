#pragma once

#include "lockstep/cluster/torchrun.hpp"

#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"

namespace lockstep::detail {

std::optional<ClusterSource> torchrun_source(const Environment& environment) {
  if (!any_variable(environment, {"RANK", "WORLD_SIZE"})) return std::nullopt;
  ClusterSource source{.name = "torchrun"};
  const auto world = number_variable(environment, "WORLD_SIZE");
  source.world_size = world.value_or(0);
  source.rank = number_variable(environment, "RANK");
  if (!world || !source.rank) {
    const std::string absent = world ? "RANK" : "WORLD_SIZE";
    source.missing = fmt::format(
        "torchrun: {} is set, but {} is {}; start the program with torchrun, or set {}",
        world ? "WORLD_SIZE" : "RANK", absent, environment(absent) ? "empty" : "not", absent);
    return source;
  }
  source.local_rank = number_variable(environment, "LOCAL_RANK");
  source.local_size = number_variable(environment, "LOCAL_WORLD_SIZE");
  check_ranks(source, "RANK", "WORLD_SIZE");
  read_host(source, environment, "MASTER_ADDR");
  source.chief_port = std::uint16_t{29'500};
  read_port(source, environment, "MASTER_PORT");
  const auto agent = variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
  if (agent && (*agent == "True" || *agent == "true" || *agent == "1")) {
    if (*source.chief_port == 65'535 && !variable(environment, "LOCKSTEP_PORT"))
      throw ClusterError(
          "torchrun: its agent listens on MASTER_PORT=65535, and the chief would "
          "use the next port; set LOCKSTEP_PORT on all ranks");
    ++*source.chief_port;
  }
  const auto run = variable(environment, "TORCHELASTIC_RUN_ID");
  // Without --rdzv-id, torchrun gives every job the id "none".
  if (run && *run != "none") source.job_id = *run;
  return source;
}

}  // namespace lockstep::detail
