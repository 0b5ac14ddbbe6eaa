#pragma once

#include "lockstep/cluster/slurm.hpp"

#include <string>

#include "lockstep/cluster/slurm_lists.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

std::optional<ClusterSource> slurm_source(const Environment& environment) {
  if (!variable(environment, "SLURM_STEP_ID")) return std::nullopt;
  const auto step = number_variable(environment, "SLURM_STEP_ID");
  // Step ids from here on are Slurm's own: batch script, interactive shell.
  if (*step >= 0xFFFFFFF0U) return std::nullopt;
  const auto world = number_variable(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  // A step of one task is an ordinary process.
  if (!world || *world <= 1) return std::nullopt;
  ClusterSource source{.name = "Slurm"};
  source.world_size = *world;
  const auto job = number_variable(environment, "SLURM_JOB_ID");
  source.rank = number_variable(environment, "SLURM_PROCID");
  const auto hosts = variable(environment, "SLURM_STEP_NODELIST");
  if (!job || !source.rank || !hosts) {
    source.missing =
        fmt::format("Slurm: SLURM_STEP_ID is set, but {} is not; start the program with srun",
                    !job           ? "SLURM_JOB_ID"
                    : !source.rank ? "SLURM_PROCID"
                                   : "SLURM_STEP_NODELIST");
    return source;
  }
  source.job_id = fmt::format("{}.{}", *job, *step);
  source.local_rank = number_variable(environment, "SLURM_LOCALID");
  check_ranks(source, "SLURM_PROCID", "SLURM_NTASKS");

  const HostList nodes(*hosts, "Slurm: SLURM_STEP_NODELIST");
  const std::string first = nodes[0];
  source.chief_host =
      checked_host(first, fmt::format("Slurm: SLURM_STEP_NODELIST {}", quote(first)));
  source.chief_port = job_port(*job);
  // The lists must agree with the counts.
  if (const auto count = number_variable(environment, "SLURM_STEP_NUM_NODES");
      count && *count != nodes.size())
    throw ClusterError(
        "Slurm: SLURM_STEP_NUM_NODES={}, but SLURM_STEP_NODELIST {} has {} hosts; start the "
        "program with srun, or set LOCKSTEP_LAUNCHER",
        *count, quote(*hosts), nodes.size());
  if (const auto list = variable(environment, "SLURM_STEP_TASKS_PER_NODE")) {
    const TasksPerNode tasks(*list, "Slurm: SLURM_STEP_TASKS_PER_NODE");
    if (tasks.nodes() != nodes.size() || tasks.tasks() != source.world_size)
      throw ClusterError(
          "Slurm: SLURM_STEP_TASKS_PER_NODE {} has {} tasks on {} nodes, but the step has {} tasks "
          "on {}; start the program with srun, or set LOCKSTEP_LAUNCHER",
          quote(*list), tasks.tasks(), tasks.nodes(), source.world_size, nodes.size());
    if (const auto node = number_variable(environment, "SLURM_NODEID");
        node && *node < nodes.size())
      source.local_size = tasks[*node];
  }
  check_ranks(source, "SLURM_PROCID", "SLURM_NTASKS");
  return source;
}

}  // namespace lockstep::detail
