#include "lockstep/cluster/description/spec.hpp"

#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "lockstep/cluster/description/tf_config.hpp"
#include "unit/cluster/support.hpp"

using cluster_test::sentence;
using lockstep::ClusterSpec;
using lockstep::Task;
using lockstep::TaskType;

TEST_CASE("a cluster built in code prints sorted JSON, which parses to the same cluster") {
  const auto cluster = ClusterSpec{}
                           .worker("10.0.0.2:2222")
                           .worker("Node3:2222")
                           .evaluator("[0:0::1]:5")
                           .chief("10.0.0.1:12345");
  CHECK(cluster.json() == R"({"chief":["10.0.0.1:12345"],"evaluator":["[::1]:5"],)"
                          R"("worker":["10.0.0.2:2222","node3:2222"]})");
  CHECK(lockstep::parse_cluster(cluster.json(), "text") == cluster);
  CHECK(cluster.tf_config({TaskType::worker, 1}) ==
        "{\"cluster\":" + cluster.json() + R"(,"task":{"index":1,"type":"worker"}})");
  CHECK(lockstep::parse_tf_config(cluster.tf_config({TaskType::worker, {}})).task ==
        Task{TaskType::worker, {}});
}

TEST_CASE("the order of insertion does not change the JSON") {
  const auto a = lockstep::parse_cluster(R"({"worker":["b:1","c:1"],"chief":["a:1"]})", "a");
  const auto b =
      lockstep::parse_cluster(R"({ "chief" : ["A:1"], "worker":{"1":"c:1","0":"b:1"}})", "b");
  CHECK(a == b);
  CHECK(a.json() == b.json());
}

TEST_CASE("the chief is rank 0 the workers follow, and the evaluator has no rank") {
  const auto cluster = ClusterSpec{}.chief("a:1").worker("b:1").worker("c:1").evaluator("e:1");
  CHECK(cluster.world_size() == 3);
  CHECK(cluster.rank({TaskType::chief, 0}) == 0);
  CHECK(cluster.rank({TaskType::worker, 0}) == 1);
  CHECK(cluster.rank({TaskType::worker, 1}) == 2);
  CHECK(cluster.chief_task() == Task{TaskType::chief, 0});
  for (std::size_t r = 0; r < 3; ++r) CHECK(cluster.rank(cluster.task(r)) == r);
  CHECK(to_string(cluster.address(2)) == "c:1");
}

TEST_CASE("without a chief, worker i is rank i and worker 0 acts as chief") {
  const auto cluster = ClusterSpec{}.worker("b:1").worker("c:1");
  CHECK(cluster.world_size() == 2);
  CHECK(cluster.rank({TaskType::worker, 0}) == 0);
  CHECK(cluster.rank({TaskType::worker, 1}) == 1);
  CHECK(cluster.chief_task() == Task{TaskType::worker, 0});
  CHECK(cluster.task(1) == Task{TaskType::worker, 1});
}

TEST_CASE("the table has a line per rank and marks the chief and this process") {
  const auto cluster = ClusterSpec{}.chief("10.0.0.1:12345").worker("b:1");
  CHECK(cluster.table(1) ==
        "rank  task          address\n"
        "   0  chief:0       10.0.0.1:12345  chief\n"
        "   1  worker:0      b:1  (this process)\n");
}

TEST_CASE("the builder refuses the same errors as the parser") {
  CHECK(sentence([] { ClusterSpec{}.worker("a:1").worker("b"); }) ==
        "worker[1] \"b\" has no port; write \"b:12345\"");
  CHECK(sentence([] { ClusterSpec{}.chief("a:1").worker("A:1"); }) ==
        "worker[0] \"A:1\" is also chief[0]; give each task its own port");
  CHECK(sentence([] {
          ClusterSpec{}.chief("a:1").chief("b:1");
        }).starts_with("chief has more than one host; a cluster has one chief"));
  CHECK(sentence([] {
          ClusterSpec{}.evaluator("a:1").evaluator("b:1");
        }).starts_with("evaluator has more than one host"));
  CHECK(sentence([] { ClusterSpec{}.check(); }).starts_with("cluster has no chief and no worker"));
}

TEST_CASE("a failed insertion leaves the cluster unchanged") {
  auto cluster = ClusterSpec{}.worker("a:1");
  CHECK(sentence([&] { cluster.worker("a:1"); }) != "no error");
  CHECK(cluster == ClusterSpec{}.worker("a:1"));
  CHECK(cluster.worker("b:1").world_size() == 2);
}

TEST_CASE("a cluster is capped at 65,536 hosts") {
  ClusterSpec cluster;
  for (int i = 0; i < 65'536; ++i) cluster.worker(fmt::format("n{}:1", i));
  CHECK(sentence([&] { cluster.worker("one-more:1"); }).find("more than 65536 hosts") !=
        std::string::npos);
}

TEST_CASE("a task is parsed from TYPE:INDEX") {
  CHECK(lockstep::parse_task("worker:0", "--task") == Task{TaskType::worker, 0});
  CHECK(lockstep::parse_task("chief:0", "--task") == Task{TaskType::chief, 0});
  CHECK(lockstep::parse_task("worker:12", "--task") == Task{TaskType::worker, 12});
  CHECK(lockstep::parse_task("worker:auto", "--task") == Task{TaskType::worker, {}});
  CHECK(to_string(Task{TaskType::worker, 12}) == "worker:12");
  CHECK(to_string(Task{TaskType::worker, {}}) == "worker:auto");
}

TEST_CASE("an invalid task is refused with a correction") {
  struct Row {
    const char *entry, *fragment;
  };
  const Row rows[] = {
      {"", "--task \"\" is not a task type"},
      {"worker", "--task \"worker\" has no index; write \"worker:0\""},
      {"worker:", "has the index \"\", which is not a non-negative integer"},
      {"worker:-1", "has the index \"-1\""},
      {"worker:1.0", "has the index \"1.0\""},
      {"worker:+1", "has the index \"+1\""},
      {"worker: 1", "has the index \" 1\""},
      {"worker:1:2", "has the index \"1:2\""},
      {"worker:99999999999", "has the index \"99999999999\""},
      {"worker:AUTO", "write \"worker:0\" or \"worker:auto\""},
      {"workers:0", "--task \"workers\" is not a task type; write \"worker\""},
      {"Worker:0", "write \"worker\""},
      {"master:0", "write \"chief\""},
      {"boss:0", "the types are chief, worker, evaluator and ps"},
      {"0", "--task \"0\" is not a task type"},
      {"0:worker", "--task \"0\" is not a task type"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.entry);
    const std::string message = sentence([&] { lockstep::parse_task(row.entry, "--task"); });
    CAPTURE(message);
    CHECK(message.find(row.fragment) != std::string::npos);
  }
}
