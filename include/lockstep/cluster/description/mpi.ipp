#pragma once

#include "lockstep/cluster/description/mpi.hpp"

#include <cstdint>
#include <string>

#include "lockstep/cluster/description/launcher_process.hpp"
#include "lockstep/cluster/description/slurm.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// A text that all processes of one mpirun share, and no others, from Open MPI's job name:
/// "1531576320.0;tcp://10.96.0.1:34911" and "1531576321" (version 4, whose number is a multiple of
/// 65,536), "prterun-host-1234@1" (version 5). Empty if there is none.
inline std::string open_mpi_job(const Environment& environment) {
  const std::string uri = variable(environment, "OMPI_MCA_orte_hnp_uri").value_or("");
  const std::string space = variable(environment, "PMIX_NAMESPACE").value_or("");
  if (uri.empty() && space.empty()) return {};
  return format_text("mpirun-{:016x}", stable_hash(format_text("{} {}", uri, space)));
}

/// Sets host and ports of the chief from the variables; if all ranks run on one machine, from that.
inline void find_mpi_chief(ClusterSource& source, const Environment& environment) {
  read_host(source, environment, "MASTER_ADDR");
  if (source.chief_host)
    source.chief_port = std::uint16_t{29'500};
  else if (source.local_size == source.world_size)
    source.chief_host = "127.0.0.1";
  else if (source.empty_host.empty())
    use_first_node(source, environment);
  derive_ports(source);
  read_port(source, environment, "MASTER_PORT");
}

std::optional<ClusterSource> open_mpi_source(const Environment& environment) {
  if (!any_variable(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}))
    return std::nullopt;
  ClusterSource source{.name = "Open MPI"};
  const auto world = number_variable(environment, "OMPI_COMM_WORLD_SIZE");
  source.world_size = world.value_or(0);
  source.rank = number_variable(environment, "OMPI_COMM_WORLD_RANK");
  if (!world || !source.rank) {
    source.missing =
        "Open MPI: only one of OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE is set; "
        "start the program with mpirun";
    return source;
  }
  source.local_rank = number_variable(environment, "OMPI_COMM_WORLD_LOCAL_RANK");
  source.local_size = number_variable(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  check_ranks(source, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  source.job_id = open_mpi_job(environment);
  find_mpi_chief(source, environment);
  return source;
}

/// The id of a job of PMI, whose variables have none: the launcher's process if all ranks run on this
/// machine, else the scheduler's number.
/// Empty if there is neither.
inline std::string pmi_job(const ClusterSource& source, const Environment& environment,
                           const char* rank_name) {
  if (source.local_size == source.world_size)
    if (const auto process = launcher_process(rank_name))
      return format_text("mpiexec-{}", *process);
  // mpiexec starts its proxies as a step, of which two may run in one job.
  const std::string step = variable(environment, "SLURM_STEP_ID").value_or("");
  for (const char* name :
       {"PMIX_NAMESPACE", "PALS_APID", "FLUX_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"})
    if (const auto id = variable(environment, name))
      return format_text("mpiexec-{:016x}", stable_hash(format_text("{} {} {}", name, *id, step)));
  return {};
}

std::optional<ClusterSource> pmi_source(const Environment& environment) {
  const char* rank_name = "PMI_RANK";
  for (const char* name : {"PALS_RANKID", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (variable(environment, name)) rank_name = name;
  const auto rank = number_variable(environment, std::string(rank_name));
  const auto world = number_variable(environment, {"PMI_SIZE", "MV2_COMM_WORLD_SIZE"});
  if (!rank && !world) return std::nullopt;
  ClusterSource source{.name = "PMI"};
  source.world_size = world.value_or(0);
  source.rank = rank;
  if (!rank || !world) {
    source.missing = rank ? "PMI: a rank is set (PMI_RANK, PMIX_RANK, MV2_COMM_WORLD_RANK or "
                            "PALS_RANKID), but no size (PMI_SIZE or MV2_COMM_WORLD_SIZE); set "
                            "LOCKSTEP_WORLD_SIZE, LOCKSTEP_RANK and LOCKSTEP_COORDINATOR"
                          : "PMI: a size is set, but no rank (PMI_RANK or MV2_COMM_WORLD_RANK); "
                            "start the program with mpiexec";
    return source;
  }
  source.local_rank =
      number_variable(environment, {"MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"});
  source.local_size =
      number_variable(environment, {"MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"});
  check_ranks(source, "the rank", "the size");
  source.job_id = pmi_job(source, environment, rank_name);
  find_mpi_chief(source, environment);
  return source;
}

}  // namespace lockstep::detail
