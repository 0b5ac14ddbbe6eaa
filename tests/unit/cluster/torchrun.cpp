#include "lockstep/cluster/torchrun.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/cluster/resolve.hpp"
#include "unit/cluster/support.hpp"

namespace {

using cluster_test::Variables;

const Variables torchrun{{"RANK", "3"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"GROUP_RANK", "1"},
                         {"MASTER_ADDR", "node0"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RESTART_COUNT", "0"},
                         {"TORCHELASTIC_RUN_ID", "run-7"}};

lockstep::ResolvedCluster resolve(Variables variables, const Variables& changes = {}) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return lockstep::resolve_cluster(cluster_test::environment(variables));
}
std::string refusal(const Variables& changes) {
  return cluster_test::sentence([&] { resolve(torchrun, changes); });
}

}  // namespace

TEST_CASE("torchrun's variables describe rank, world size, chief, local rank and job") {
  const auto job = resolve(torchrun);
  CHECK(job.source == "torchrun");
  CHECK(job.job_id == "run-7");
  CHECK(job.world_size == 4);
  CHECK(job.rank == 3);
  CHECK(job.local_rank == 1);
  CHECK(job.local_size == 2);
  CHECK(job.chief == lockstep::HostPort{"node0", 29'500});
  CHECK_FALSE(job.cluster);
  CHECK_FALSE(job.is_chief());
  CHECK(job.description() == R"({"chief":"node0:29500","world_size":4})");
  CHECK(job.name(0) == "rank 0 (node0:29500)");
  CHECK(job.name(2) == "rank 2");
}

TEST_CASE("the chief leaves MASTER_PORT to torchrun's agent if the agent listens there") {
  CHECK(resolve(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}).chief->port == 29'501);
  CHECK(resolve(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).chief->port == 29'500);
  CHECK(resolve(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"LOCKSTEP_PORT", "7000"}})
            .chief->port == 7'000);
  CHECK(refusal({{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", "65535"}})
            .find("set LOCKSTEP_PORT on all ranks") != std::string::npos);
  CHECK(resolve(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"MASTER_PORT", "65535"},
                           {"LOCKSTEP_PORT", "7000"}})
            .chief->port == 7'000);
}

TEST_CASE("torchrun's defaults: port 29500, and no job id if the id is none") {
  CHECK(resolve(torchrun, {{"MASTER_PORT", ""}}).chief->port == 29'500);
  CHECK(resolve(torchrun, {{"TORCHELASTIC_RUN_ID", "none"}}).job_id.empty());
  CHECK(resolve(torchrun, {{"MASTER_ADDR", "[FD00::0:1]"}}).chief->host == "fd00::1");
}

TEST_CASE("invalid torchrun variables are refused by name") {
  struct Row {
    Variables changes;
    const char* fragment;
  };
  const Row rows[] = {
      {{{"RANK", "4"}}, "torchrun: RANK=4 is out of range for WORLD_SIZE=4; ranks go from 0 to 3"},
      {{{"RANK", "-1"}}, "RANK=\"-1\" is not a non-negative integer"},
      {{{"RANK", "1.0"}}, "RANK=\"1.0\" is not a non-negative integer"},
      {{{"RANK", " 1"}}, "RANK=\" 1\" is not a non-negative integer"},
      {{{"RANK", "99999999999999999999"}}, "is not a non-negative integer"},
      {{{"WORLD_SIZE", "0"}}, "torchrun: WORLD_SIZE is 0; it must be at least 1"},
      {{{"WORLD_SIZE", "1000001"}}, "WORLD_SIZE=1000001 is too large; the maximum is 1000000"},
      {{{"WORLD_SIZE", "four"}}, "WORLD_SIZE=\"four\" is not a non-negative integer"},
      {{{"RANK", ""}}, "torchrun: WORLD_SIZE is set, but RANK is empty; start the program"},
      {{{"WORLD_SIZE", ""}}, "torchrun: RANK is set, but WORLD_SIZE is empty; start the program"},
      {{{"MASTER_ADDR", ""}},
       "torchrun: MASTER_ADDR is empty; set it to the host of rank 0 on all ranks, or set "
       "LOCKSTEP_COORDINATOR=HOST:PORT"},
      {{{"MASTER_ADDR", "a b"}}, "torchrun: MASTER_ADDR=\"a b\" has \" \" in its host"},
      {{{"MASTER_ADDR", "1.2.3"}}, "torchrun: MASTER_ADDR=\"1.2.3\" is not a valid IPv4 address"},
      {{{"MASTER_PORT", "0"}}, "torchrun: MASTER_PORT=\"0\" has the port \"0\", which is out of"},
      {{{"MASTER_PORT", "65536"}}, "which is out of range"},
      {{{"LOCAL_RANK", "2"}}, "torchrun: local rank 2 is out of range for local size 2"},
      {{{"TORCHELASTIC_RUN_ID", "a\nb"}},
       "torchrun: the job's id=\"a\\x0ab\" is not a valid job id"},
  };
  for (const Row& row : rows) {
    const std::string message = refusal(row.changes);
    CAPTURE(message, row.fragment);
    CHECK(message.find(row.fragment) != std::string::npos);
    CHECK(cluster_test::fit_to_print(message));
  }
}
