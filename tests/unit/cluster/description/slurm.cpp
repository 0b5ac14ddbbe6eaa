#include "lockstep/cluster/description/slurm.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "lockstep/cluster/resolve.hpp"
#include "unit/cluster/support.hpp"

namespace {

using cluster_test::Variables;

const Variables step{{"SLURM_JOB_ID", "4711"},
                     {"SLURM_STEP_ID", "2"},
                     {"SLURM_PROCID", "3"},
                     {"SLURM_NTASKS", "5"},
                     {"SLURM_LOCALID", "1"},
                     {"SLURM_NODEID", "1"},
                     {"SLURM_STEP_NUM_NODES", "3"},
                     {"SLURM_STEP_NODELIST", "Rack[01-02]n1,login"},
                     {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                     {"SLURMD_NODENAME", "rack02n1"}};

lockstep::ResolvedCluster resolve(Variables variables, const Variables& changes = {}) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return lockstep::resolve_cluster(cluster_test::environment(variables));
}
std::string refusal(const Variables& changes) {
  return cluster_test::sentence([&] { resolve(step, changes); });
}

}  // namespace

TEST_CASE("a Slurm step describes rank, world size, first host, and a port from the job id") {
  const auto job = resolve(step);
  CHECK(job.source == "Slurm");
  CHECK(job.job_id == "4711.2");
  CHECK(job.world_size == 5);
  CHECK(job.rank == 3);
  CHECK(job.local_rank == 1);
  CHECK(job.local_size == 2);
  CHECK(job.chief == lockstep::HostPort{"rack01n1", 4'711 % 4'096 + 61'440});
  CHECK(resolve(step, {{"LOCKSTEP_PORT", "7000"}}).chief->port == 7'000);
  CHECK(resolve(step, {{"SLURM_NODEID", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_PROCID", "4"}})
            .local_size == 1);
}

TEST_CASE("two steps of a Slurm job have another port in common with none but themselves") {
  const auto two = resolve(step), three = resolve(step, {{"SLURM_STEP_ID", "3"}});
  CHECK(two.chief == three.chief);
  CHECK(two.job_id != three.job_id);
  REQUIRE(two.more_ports.size() == 3);
  CHECK(two.more_ports != three.more_ports);
  CHECK(resolve(step, {{"LOCKSTEP_PORT", "7000"}}).more_ports.empty());
}

TEST_CASE("with --distribution=arbitrary, rank 0 is on the first host of SLURM_HOSTFILE") {
  const std::string path = "slurm-hostfile.txt";
  const auto chief = [&](const char* text, const char* distribution = "arbitrary") {
    std::ofstream(path) << text;
    return resolve(step, {{"SLURM_HOSTFILE", path}, {"SLURM_DISTRIBUTION", distribution}})
        .chief->host;
  };
  CHECK(chief("login\nRack01n1\nRack01n1\nRack02n1\nRack02n1\n") == "login");
  CHECK(chief("# by hand\n\n  login*1\r\nRack01n1\n") == "login");
  CHECK(chief("Rack[02,01]n1,login\n") == "rack02n1");
  CHECK(chief("") == "rack01n1");
  CHECK(chief("login\n", "block") == "rack01n1");
  std::remove(path.c_str());
  // This node cannot read it.
  CHECK(
      resolve(step, {{"SLURM_HOSTFILE", path}, {"SLURM_DISTRIBUTION", "arbitrary"}}).chief->host ==
      "rack01n1");
}

TEST_CASE("rank 0 on another node than the first of the list names the remedy") {
  const Variables third{{"SLURM_PROCID", "0"}, {"SLURMD_NODENAME", "login"}};
  CHECK(refusal(third) ==
        "Slurm: rank 0 is on login, not on rack01n1, the first host of SLURM_STEP_NODELIST; set "
        "LOCKSTEP_COORDINATOR=login:62055 on all ranks");
  Variables bound = third;
  bound["LOCKSTEP_BIND"] = "0.0.0.0";
  CHECK(refusal(bound).starts_with("Slurm: rank 0 is on login"));
  bound["LOCKSTEP_COORDINATOR"] = "login:62055";
  CHECK(resolve(step, bound).chief->host == "login");
  CHECK(resolve(step, {{"SLURM_PROCID", "0"}, {"SLURMD_NODENAME", "Rack01n1"}}).is_chief());
  CHECK(resolve(step, {{"SLURM_PROCID", "0"}, {"SLURMD_NODENAME", ""}}).is_chief());
}

TEST_CASE("a step that is smaller than its job uses its own task count") {
  const auto job = resolve(step, {{"SLURM_NTASKS", "64"}, {"SLURM_STEP_NUM_TASKS", "5"}});
  CHECK(job.world_size == 5);
}

TEST_CASE("Slurm's variables are ignored outside a step of several tasks") {
  const char* const nothing = "no cluster is described: set TF_CONFIG";
  CHECK(refusal({{"SLURM_STEP_ID", ""}}).starts_with(nothing));
  CHECK(refusal({{"SLURM_NTASKS", "1"}}).starts_with(nothing));
  CHECK(refusal({{"SLURM_NTASKS", ""}}).starts_with(nothing));
  CHECK(refusal({{"SLURM_STEP_NUM_TASKS", "1"}}).starts_with(nothing));
  // The shell of salloc, and the batch script.
  CHECK(refusal({{"SLURM_STEP_ID", "4294967290"}}).starts_with(nothing));
  CHECK(refusal({{"SLURM_STEP_ID", "4294967291"}}).starts_with(nothing));
}

TEST_CASE("invalid or contradictory Slurm variables are refused by name") {
  struct Row {
    Variables changes;
    const char* fragment;
  };
  const Row rows[] = {
      {{{"SLURM_PROCID", "5"}}, "Slurm: SLURM_PROCID=5 is out of range for SLURM_NTASKS=5"},
      {{{"SLURM_PROCID", "x"}}, "SLURM_PROCID=\"x\" is not a non-negative integer"},
      {{{"SLURM_PROCID", ""}}, "Slurm: SLURM_STEP_ID is set, but SLURM_PROCID is not"},
      {{{"SLURM_JOB_ID", ""}}, "Slurm: SLURM_STEP_ID is set, but SLURM_JOB_ID is not"},
      {{{"SLURM_STEP_NODELIST", ""}}, "SLURM_STEP_NODELIST is not; start the program with srun"},
      {{{"SLURM_STEP_ID", "first"}}, "SLURM_STEP_ID=\"first\" is not a non-negative integer"},
      {{{"SLURM_NTASKS", "2000000"}}, "Slurm: SLURM_NTASKS=2000000 is too large"},
      {{{"SLURM_STEP_NODELIST", "a[1-"}}, "Slurm: SLURM_STEP_NODELIST \"a[1-\" has no number"},
      {{{"SLURM_STEP_NODELIST", "a[1-3]"}, {"SLURM_STEP_NUM_NODES", "2"}},
       "SLURM_STEP_NUM_NODES=2, but SLURM_STEP_NODELIST \"a[1-3]\" has 3 hosts"},
      {{{"SLURM_STEP_NODELIST", "-a,b,c"}}, "has a host name with a label that begins with '-'"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}},
       "SLURM_STEP_TASKS_PER_NODE \"2(x3)\" has 6 tasks on 3 nodes, but the step has 5 tasks on 3"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "3,2"}}, "has 5 tasks on 2 nodes, but the step has 5 tasks"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}, "SLURM_STEP_TASKS_PER_NODE \"2(x\" has no number"},
      {{{"SLURM_LOCALID", "2"}}, "Slurm: local rank 2 is out of range for local size 2"},
  };
  for (const Row& row : rows) {
    const std::string message = refusal(row.changes);
    CAPTURE(message, row.fragment);
    CHECK(message.find(row.fragment) != std::string::npos);
    CHECK(cluster_test::fit_to_print(message));
  }
}
