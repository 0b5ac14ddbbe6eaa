#pragma once

#include "lockstep/cluster/mpi.hpp"

#include <charconv>
#include <cstdint>

namespace lockstep::detail {

/// A number that all processes of one mpirun share, from Open MPI's job name:
/// "1531576320.0;tcp://10.96.0.1:34911" (version 4), "prterun-host-1234@1" (version 5).
inline std::optional<std::uint64_t> open_mpi_job(const Environment& environment) {
  if (const auto uri = variable(environment, "OMPI_MCA_orte_hnp_uri")) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(uri->data(), uri->data() + uri->size(), number);
    if (error == std::errc{} && end != uri->data()) return number;
  }
  if (const auto space = variable(environment, "PMIX_NAMESPACE")) {
    std::uint64_t hash = 14'695'981'039'346'656'037U;  // FNV-1a, which is portable
    for (const char c : *space) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
    return hash ^ (hash >> 32);
  }
  return std::nullopt;
}

/// Sets host and port of the chief from the variables; if all ranks run on one machine, from that.
inline void find_mpi_chief(ClusterSource& source, const Environment& environment,
                           std::optional<std::uint64_t> job) {
  read_host(source, environment, "MASTER_ADDR");
  if (source.chief_host) source.chief_port = std::uint16_t{29'500};
  if (!source.chief_host && source.local_size == source.world_size) {
    source.chief_host = "127.0.0.1";
    if (job) source.chief_port = job_port(*job);
  }
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
  find_mpi_chief(source, environment, open_mpi_job(environment));
  return source;
}

std::optional<ClusterSource> pmi_source(const Environment& environment) {
  const auto rank =
      number_variable(environment, {"PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID"});
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
  find_mpi_chief(source, environment, std::nullopt);
  return source;
}

}  // namespace lockstep::detail
