#pragma once

#include "lockstep/cluster/description/torchrun.hpp"

#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

/// Rank 0 of a job that spans machines and has no address that others could reach: PyTorchJob gives
/// its master "localhost" or nothing. With a secret it may listen everywhere.
inline void open_chief(ClusterSource& source, const Environment& environment) {
  const bool is_far = source.rank == std::size_t{0} && source.world_size > 1 &&
                      source.local_size != source.world_size &&
                      (!source.chief_host || is_loopback(*source.chief_host));
  const bool has_bind = variable(environment, "LOCKSTEP_BIND").has_value();
  if (!is_far || variable(environment, "LOCKSTEP_COORDINATOR") ||
      (!has_bind && !any_variable(environment, {"LOCKSTEP_SECRET", "LOCKSTEP_SECRET_FILE"})))
    return;
  if (!source.chief_host) source.chief_host = "127.0.0.1";
  if (has_bind) return;
  source.bind = BindAddress{"0.0.0.0", std::nullopt};
  source.notes.push_back(format_text(
      "{}: rank 0 has no address that other machines reach, so it listens at all addresses; "
      "LOCKSTEP_BIND names another one",
      source.name));
}

/// PET_*, by which Kubeflow Trainer configures the torchrun of each node. A program that runs instead
/// of torchrun is the node's only worker.
inline std::optional<ClusterSource> pet_source(const Environment& environment) {
  const auto nodes = variable(environment, "PET_NNODES");
  const auto rank = number_variable(environment, "PET_NODE_RANK");
  if (!nodes || !rank) return std::nullopt;  // torchrun's defaults, not a job
  ClusterSource source{.name = "PET_NNODES"};
  source.rank = rank;
  if (nodes->find(':') != std::string::npos) {
    source.missing = format_text(
        "PET_NNODES={} is a range; start the program with torchrun, or set LOCKSTEP_WORLD_SIZE, "
        "LOCKSTEP_RANK and LOCKSTEP_COORDINATOR",
        quote(*nodes));
    return source;
  }
  source.world_size = number_variable(environment, std::string("PET_NNODES")).value_or(0);
  check_ranks(source, "PET_NODE_RANK", "PET_NNODES");
  read_host(source, environment, "PET_MASTER_ADDR");
  source.chief_port = std::uint16_t{29'500};
  read_port(source, environment, "PET_MASTER_PORT");
  source.compares_chief_host = false;
  open_chief(source, environment);
  if (const auto each = variable(environment, "PET_NPROC_PER_NODE"); each && *each != "1")
    source.notes.push_back(format_text(
        "PET_NPROC_PER_NODE={} is ignored: torchrun has not started this process, so it is the only "
        "worker of its node",
        quote(*each)));
  return source;
}

std::optional<ClusterSource> torchrun_source(const Environment& environment) {
  if (!any_variable(environment, {"RANK", "WORLD_SIZE"})) return pet_source(environment);
  ClusterSource source{.name = "torchrun"};
  const auto world = number_variable(environment, "WORLD_SIZE");
  source.world_size = world.value_or(0);
  source.rank = number_variable(environment, "RANK");
  if (!world || !source.rank) {
    const std::string absent = world ? "RANK" : "WORLD_SIZE";
    source.missing = format_text(
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
  const auto run = variable(environment, "TORCHELASTIC_RUN_ID");
  // Its agents sort the nodes by name as text, srun sorts them by number: n10 is before n2, or after.
  source.has_own_ranks = run.has_value() && source.local_size.has_value();
  // Without --rdzv-id, torchrun gives every job the id "none".
  if (run && *run != "none") source.job_id = *run;
  const auto agent = variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
  if (agent && (*agent == "True" || *agent == "true" || *agent == "1") && source.chief_host) {
    // No other job has the agent's port on rank 0's host. The host's name is left out: with a static
    // rendezvous each node has the one of its own --master-addr.
    source.job_id = format_text("{}{}port-{}", source.job_id, source.job_id.empty() ? "" : "@",
                                *source.chief_port);
    source.chief_port.reset();
    derive_ports(source);
  }
  source.compares_chief_host = false;
  open_chief(source, environment);
  return source;
}

}  // namespace lockstep::detail
