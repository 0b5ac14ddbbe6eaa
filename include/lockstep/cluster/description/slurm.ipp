#pragma once

#include "lockstep/cluster/description/slurm.hpp"

#include <unistd.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>

#include "lockstep/cluster/description/slurm_lists.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

/// The name of this process' node in Slurm, in the spelling of `checked_host`; empty if unknown.
inline std::string slurm_node(const Environment& environment) {
  const auto node = variable(environment, "SLURMD_NODENAME");
  return node ? checked_host(*node, format_text("Slurm: SLURMD_NODENAME={}", quote(*node)))
              : std::string();
}

/// The same for a process of mpiexec, which passes on the variables of the machine where it runs: the
/// name of this machine counts first, if it is one of `nodes`.
inline std::string mpi_node(const HostList& nodes, const Environment& environment) {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return slurm_node(environment);
  const std::string_view full = name.data(), own = full.substr(0, full.find('.'));
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (const std::string node = nodes[i]; node == own)
      return checked_host(node, format_text("Slurm: SLURM_JOB_NODELIST {}", quote(node)));
  return slurm_node(environment);
}

/// The first host of SLURM_HOSTFILE; nullopt if this machine cannot read it.
inline std::optional<std::string> first_of_hostfile(const Environment& environment) {
  const auto way = variable(environment, "SLURM_DISTRIBUTION");
  const auto path = variable(environment, "SLURM_HOSTFILE");
  if (!path || !way || !way->starts_with("arbitrary")) return std::nullopt;
  std::ifstream file(*path);
  std::string line;
  while (std::getline(file, line)) {
    constexpr std::string_view blanks = " \t\r";
    const auto first = line.find_first_not_of(blanks);
    if (first == std::string::npos || line[first] == '#') continue;
    const auto end = line.find_first_of(" \t\r#*", first);  // "node1*4": four tasks
    const HostList hosts(line.substr(first, end - first),
                         format_text("Slurm: SLURM_HOSTFILE {}", quote(*path)));
    return hosts[0];
  }
  return std::nullopt;
}

void use_first_node(ClusterSource& source, const Environment& environment) {
  const char* const list = "SLURM_JOB_NODELIST";
  const auto hosts = variable(environment, list);
  if (!hosts || !variable(environment, "SLURM_JOB_ID")) return;
  const HostList nodes(*hosts, std::string("Slurm: ") + list);
  const std::string first = nodes[0];
  source.chief_host = checked_host(first, format_text("Slurm: {} {}", list, quote(first)));
  source.chief_list = list;
  source.node = mpi_node(nodes, environment);
}

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
        format_text("Slurm: SLURM_STEP_ID is set, but {} is not; start the program with srun",
                    !job           ? "SLURM_JOB_ID"
                    : !source.rank ? "SLURM_PROCID"
                                   : "SLURM_STEP_NODELIST");
    return source;
  }
  source.job_id = format_text("{}.{}", *job, *step);
  source.local_rank = number_variable(environment, "SLURM_LOCALID");
  check_ranks(source, "SLURM_PROCID", "SLURM_NTASKS");

  const HostList nodes(*hosts, "Slurm: SLURM_STEP_NODELIST");
  const auto placed = first_of_hostfile(environment);
  source.chief_list = placed ? "SLURM_HOSTFILE" : "SLURM_STEP_NODELIST";
  const std::string first = placed ? *placed : nodes[0];
  source.chief_host =
      checked_host(first, format_text("Slurm: {} {}", source.chief_list, quote(first)));
  source.node = slurm_node(environment);
  source.chief_port = job_port(*job);
  derive_ports(source);
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
