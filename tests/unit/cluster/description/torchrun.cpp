#include "lockstep/cluster/description/torchrun.hpp"

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
  // The ranks may call rank 0's host by different names.
  CHECK(job.description() == R"({"chief":":29500","world_size":4})");
  CHECK(job.name(0) == "rank 0 (node0:29500)");
  CHECK(job.name(2) == "rank 2");
}

TEST_CASE("the chief leaves MASTER_PORT to torchrun's agent if the agent listens there") {
  const Variables agent{{"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  const auto with_agent = [&](Variables changes) {
    changes.insert(agent.begin(), agent.end());
    return resolve(torchrun, changes);
  };
  CHECK(resolve(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).chief->port == 29'500);
  // Not the next port: it may be the agent of another job.
  const auto one = with_agent({}), next = with_agent({{"MASTER_PORT", "29501"}});
  for (const auto& job : {one, next}) {
    CHECK(job.chief->port >= 61'440);
    CHECK(job.more_ports.size() == 3);
  }
  CHECK(one.chief->port != next.chief->port);
  CHECK(one.job_id == "run-7@port-29500");
  CHECK(next.job_id == "run-7@port-29501");
  CHECK(with_agent({{"TORCHELASTIC_RUN_ID", "none"}}).job_id == "port-29500");
  CHECK(with_agent({{"MASTER_PORT", "65535"}}).chief->port >= 61'440);
  const auto given = with_agent({{"LOCKSTEP_PORT", "7000"}});
  CHECK(given.chief->port == 7'000);
  CHECK(given.more_ports.empty());
}

TEST_CASE("PyTorchJob's rank 0 has localhost or no address: with a secret it listens everywhere") {
  const Variables worker{{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "mnist-master-0"},
                         {"MASTER_PORT", "23456"}};
  const auto master = [&](const char* address, Variables more = {{"LOCKSTEP_SECRET", "s"}}) {
    Variables variables = worker;
    variables["RANK"] = "0";
    variables["MASTER_ADDR"] = address;
    return resolve(variables, more);
  };
  for (const char* address : {"localhost", "127.0.0.1", ""}) {
    CAPTURE(address);
    const auto job = master(address);
    CHECK(job.bind == lockstep::BindAddress{"0.0.0.0", {}});
    CHECK(job.chief->port == 23'456);
    CHECK(job.description() == resolve(worker).description());
    CHECK(job.notes.at(1).find("it listens at all addresses") != std::string::npos);
  }
  CHECK_FALSE(master("localhost", {}).bind);  // without a secret only this machine may connect
  CHECK_FALSE(master("mnist-master-0").bind);
  CHECK_FALSE(resolve(worker, {{"LOCKSTEP_SECRET", "s"}}).bind);
  CHECK(master("localhost", {{"LOCKSTEP_SECRET", "s"}, {"LOCKSTEP_BIND", "10.0.0.1"}}).bind->host ==
        "10.0.0.1");
  const auto bound = master("", {{"LOCKSTEP_BIND", "0.0.0.0"}});
  CHECK(bound.bind->host == "0.0.0.0");
  CHECK(bound.description() == resolve(worker).description());
  // torchrun with a static rendezvous, which passes on each node's own --master-addr.
  const Variables agent{{"LOCKSTEP_SECRET", "s"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  const auto chief = master("localhost", agent), other = resolve(worker, agent);
  CHECK(chief.bind == lockstep::BindAddress{"0.0.0.0", {}});
  CHECK(chief.job_id == other.job_id);
  CHECK(chief.chief->port == other.chief->port);
  CHECK(chief.more_ports == other.more_ports);
  // torchrun on one machine.
  CHECK_FALSE(master("localhost", {{"LOCKSTEP_SECRET", "s"}, {"LOCAL_WORLD_SIZE", "2"}}).bind);
}

TEST_CASE("the variables of Kubeflow Trainer describe one worker a node") {
  const Variables pet{{"PET_NNODES", "4"},
                      {"PET_NPROC_PER_NODE", "1"},
                      {"PET_NODE_RANK", "2"},
                      {"PET_MASTER_ADDR", "mnist-node-0-0.mnist"},
                      {"PET_MASTER_PORT", "29400"}};
  const auto job = resolve(pet);
  CHECK(job.world_size == 4);
  CHECK(job.rank == 2);
  CHECK(job.chief == lockstep::HostPort{"mnist-node-0-0.mnist", 29'400});
  CHECK(job.notes.size() == 1);
  CHECK(resolve(pet, {{"PET_NPROC_PER_NODE", "auto"}})
            .notes.at(1)
            .find("PET_NPROC_PER_NODE=\"auto\" is ignored") != std::string::npos);
  CHECK(resolve(pet, {{"PET_NODE_RANK", "0"}, {"LOCKSTEP_LAUNCHER", "torchrun"}}).is_chief());
  // torchrun has started this process, and has read them.
  auto both = torchrun;
  both.insert(pet.begin(), pet.end());
  CHECK(resolve(both).rank == 3);
  const auto refused = [&](const Variables& changes) {
    return cluster_test::sentence([&] { resolve(pet, changes); });
  };
  CHECK(refused({{"PET_NNODES", "1:4"}}).find("PET_NNODES=\"1:4\" is a range") !=
        std::string::npos);
  CHECK(
      refused({{"PET_NODE_RANK", "4"}}).find("PET_NODE_RANK=4 is out of range for PET_NNODES=4") !=
      std::string::npos);
  CHECK(refused({{"PET_NODE_RANK", ""}}).starts_with("no cluster is described"));
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
