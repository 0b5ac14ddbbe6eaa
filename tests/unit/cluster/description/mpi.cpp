#include "lockstep/cluster/description/mpi.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <set>
#include <string>

#include "lockstep/cluster/description/launcher_process.hpp"
#include "lockstep/cluster/resolve.hpp"
#include "unit/cluster/support.hpp"

namespace {

using cluster_test::Variables;

const Variables two_machines{{"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_RANK", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {"OMPI_MCA_orte_hnp_uri", "1531576320.0;tcp://10.96.0.1:34911"}};

lockstep::ResolvedCluster resolve(Variables variables, const Variables& changes = {}) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return lockstep::resolve_cluster(cluster_test::environment(variables));
}
std::string refusal(const Variables& variables, const Variables& changes = {}) {
  return cluster_test::sentence([&] { resolve(variables, changes); });
}

}  // namespace

TEST_CASE("Open MPI on two machines needs the chief's address") {
  CHECK(refusal(two_machines)
            .find("Open MPI gives no address for rank 0; set LOCKSTEP_COORDINATOR="
                  "HOST:PORT on all ranks") != std::string::npos);
  const auto job = resolve(two_machines, {{"LOCKSTEP_COORDINATOR", "node0:12345"}});
  CHECK(job.source == "Open MPI");
  CHECK(job.world_size == 4);
  CHECK(job.rank == 2);
  CHECK(job.local_rank == 0);
  CHECK(job.local_size == 2);
  CHECK(job.chief == lockstep::HostPort{"node0", 12'345});
  CHECK(job.job_id.starts_with("mpirun-"));
  CHECK(job.more_ports.empty());
  CHECK(resolve(two_machines, {{"MASTER_ADDR", "node0"}}).chief ==
        lockstep::HostPort{"node0", 29'500});
  CHECK(resolve(two_machines, {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "1"}}).chief ==
        lockstep::HostPort{"node0", 1});
  CHECK(resolve(two_machines, {{"MASTER_ADDR", "node0"}, {"LOCKSTEP_PORT", "2"}}).chief ==
        lockstep::HostPort{"node0", 2});
}

TEST_CASE("Open MPI on one machine needs no address: loopback, and a port from the job number") {
  const Variables one{{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}};
  // Numbers of five real runs of Open MPI 4.1.4: multiples of 65,536.
  std::set<std::uint16_t> ports;
  std::set<std::string> ids;
  for (const char* number : {"959774720", "883556352", "899350528", "906100736", "848035840"}) {
    Variables four = one;
    four["OMPI_MCA_orte_hnp_uri"] = std::string(number) + ".0;tcp://10.96.0.1:34911";
    const auto found = resolve(two_machines, four);
    CHECK(found.chief->host == "127.0.0.1");
    CHECK(found.chief->port >= 61'440);
    ports.insert(found.chief->port);
    ids.insert(found.job_id);
    // Where the chief listens if another program has the port.
    CHECK(found.more_ports.size() == 3);
    for (const std::uint16_t port : found.more_ports)
      CHECK((port >= 61'440 && port != found.chief->port));
  }
  CHECK(ports.size() == 5);
  CHECK(ids.size() == 5);
  // Open MPI 5 has a job name instead of a number.
  Variables five = one;
  five["OMPI_MCA_orte_hnp_uri"] = "";
  five["PMIX_NAMESPACE"] = "prterun-host-4711@1";
  const auto job = resolve(two_machines, five);
  CHECK(job.chief->host == "127.0.0.1");
  CHECK(job.chief->port >= 61'440);
  five["PMIX_NAMESPACE"] = "prterun-host-4712@1";
  CHECK(resolve(two_machines, five).chief->port != job.chief->port);
  five["PMIX_NAMESPACE"] = "";
  CHECK(refusal(two_machines, five).find("Open MPI gives no port for rank 0; set LOCKSTEP_PORT") !=
        std::string::npos);
  five["LOCKSTEP_PORT"] = "7000";
  CHECK(resolve(two_machines, five).chief == lockstep::HostPort{"127.0.0.1", 7'000});
}

TEST_CASE("mpirun in an allocation of Slurm has rank 0 on the first node") {
  const Variables slurm{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-3]"}};
  const auto job = resolve(two_machines, slurm);
  CHECK(job.chief->host == "n1");
  CHECK(job.job_id.starts_with("mpirun-"));
  CHECK(resolve({{"PMI_RANK", "1"}, {"PMI_SIZE", "6"}}, slurm).chief->host == "n1");
  CHECK(resolve({{"PMI_RANK", "1"}, {"PMI_SIZE", "6"}}, slurm).job_id.starts_with("mpiexec-"));
  Variables first = slurm;
  first["OMPI_COMM_WORLD_RANK"] = "0";
  first["SLURMD_NODENAME"] = "n1";
  CHECK(resolve(two_machines, first).is_chief());
  first["SLURMD_NODENAME"] = "n3";
  CHECK(refusal(two_machines, first)
            .find("Open MPI: rank 0 is on n3, not on n1, the first host of SLURM_JOB_NODELIST; set "
                  "LOCKSTEP_COORDINATOR=n3:") == 0);
  first["MASTER_ADDR"] = "n3";
  CHECK(resolve(two_machines, first).chief->host == "n3");

  // mpiexec passes on SLURMD_NODENAME of the machine where it runs: this machine's own name counts.
  char name[256] = {};
  REQUIRE(::gethostname(name, sizeof name - 1) == 0);
  const std::string own = std::string(name).substr(0, std::string(name).find('.'));
  const auto placed = [&](const std::string& nodes) {
    Variables all = slurm;
    all.insert({{"PMI_RANK", "0"}, {"PMI_SIZE", "6"}, {"SLURMD_NODENAME", "another"}});
    all["SLURM_JOB_NODELIST"] = nodes;
    return all;
  };
  CHECK(resolve(placed(own + ",another")).is_chief());
  CHECK(refusal(placed("another," + own)).find("PMI: rank 0 is on " + own + ", not on another") ==
        0);
}

TEST_CASE("the launcher of PMI is the nearest process without its variables, through shells too") {
  int out[2], in[2];
  REQUIRE((::pipe(out) == 0 && ::pipe(in) == 0));
  // The outer shell stands for mpiexec, the others for a wrapper and a worker.
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::dup2(out[1], 1);
    ::dup2(in[0], 0);
    ::close(in[1]);
    ::execl("/bin/sh", "sh", "-c",
            "PMI_RANK=1 sh -c \"sh -c 'echo \\$\\$; read end; :'; :\"; :", nullptr);
    ::_exit(1);
  }
  ::close(out[1]);
  std::string worker(32, '\0');
  worker.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, ::read(out[0], worker.data(), worker.size()))));
  REQUIRE(worker.ends_with('\n'));
  worker.pop_back();
  const auto found = lockstep::detail::launcher_process("PMI_RANK", worker);
  // This process has no such variable.
  const auto none = lockstep::detail::launcher_process("PMI_RANK");
  ::close(in[1]);
  ::close(in[0]);
  ::waitpid(launcher, nullptr, 0);
  ::close(out[0]);
  REQUIRE(found);
  CHECK(found->starts_with(std::to_string(launcher) + "-"));
  CHECK(found->back() != '-');
  CHECK_FALSE(none);
}

TEST_CASE("one rank alone needs no address") {
  const auto job = resolve({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}});
  CHECK(job.world_size == 1);
  CHECK(job.is_chief());
  CHECK_FALSE(job.chief);
}

TEST_CASE("PMI, MVAPICH and Intel MPI describe rank and size") {
  const Variables address{{"LOCKSTEP_COORDINATOR", "node0:12345"}};
  const auto intel = resolve({{"PMI_RANK", "1"},
                              {"PMI_SIZE", "2"},
                              {"MPI_LOCALRANKID", "1"},
                              {"MPI_LOCALNRANKS", "2"},
                              {"LOCKSTEP_PORT", "7000"}});
  CHECK(intel.source == "PMI");
  CHECK(intel.rank == 1);
  CHECK(intel.local_rank == 1);
  CHECK(intel.local_size == 2);
  CHECK(intel.chief == lockstep::HostPort{"127.0.0.1", 7'000});
  const auto mvapich =
      resolve({{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "3"}}, address);
  CHECK(mvapich.rank == 1);
  CHECK(mvapich.world_size == 3);
  CHECK(mvapich.chief == lockstep::HostPort{"node0", 12'345});
}

TEST_CASE("invalid MPI variables are refused by name") {
  struct Row {
    Variables variables;
    const char* fragment;
  };
  const Row rows[] = {
      {{{"OMPI_COMM_WORLD_RANK", "0"}},
       "only one of OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}},
       "only one of OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "2"}},
       "Open MPI: OMPI_COMM_WORLD_RANK=2 is out of range for OMPI_COMM_WORLD_SIZE=2"},
      {{{"OMPI_COMM_WORLD_SIZE", "x"}, {"OMPI_COMM_WORLD_RANK", "0"}},
       "OMPI_COMM_WORLD_SIZE=\"x\" is not a non-negative integer"},
      {{{"PMIX_RANK", "0"}}, "PMI: a rank is set"},
      {{{"PALS_RANKID", "0"}}, "but no size (PMI_SIZE or MV2_COMM_WORLD_SIZE); set LOCKSTEP_WORLD"},
      {{{"PMI_SIZE", "2"}}, "PMI: a size is set, but no rank"},
      {{{"PMI_SIZE", "2"}, {"PMI_RANK", "5"}}, "PMI: the rank=5 is out of range for the size=2"},
      {{{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, "PMI gives no address for rank 0"},
      {{{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "2"}},
       "PMI gives no port for rank 0; set LOCKSTEP_PORT"},
  };
  for (const Row& row : rows) {
    const std::string message = refusal(row.variables);
    CAPTURE(message, row.fragment);
    CHECK(message.find(row.fragment) != std::string::npos);
    CHECK(cluster_test::fit_to_print(message));
  }
}
