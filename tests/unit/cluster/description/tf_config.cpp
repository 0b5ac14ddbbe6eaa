#include "lockstep/cluster/description/tf_config.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/description/cluster_file.hpp"
#include "lockstep/cluster/resolve.hpp"
#include "unit/cluster/support.hpp"

namespace {

struct Row {
  std::string text;
  std::size_t world;
  int rank;  ///< -1: assigned by the chief
  const char* json;
  std::size_t notes = 1;  ///< the first one names the source of the cluster
};

const char* const two = R"({"worker":["a:1","b:1"]})";
const char* const chief_and_two = R"({"chief":["c:1"],"worker":["a:1","b:1"]})";

std::string with(const std::string& cluster, const std::string& task) {
  return R"({"cluster":)" + cluster + R"(,"task":)" + task + "}";
}
std::string place(const std::string& type, const std::string& index) {
  return R"({"type":")" + type + R"(","index":)" + index + "}";
}

const Row rows[] = {
    {with(two, place("worker", "0")), 2, 0, two},
    {with(two, place("worker", "1")), 2, 1, two},
    {with(two, place("worker", R"("1")")), 2, 1, two},
    {with(two, place("worker", R"("0")")), 2, 0, two},
    {with(two, place("worker", R"("auto")")), 2, -1, two},
    {with(two, R"({"index":1,"type":"worker"})"), 2, 1, two},
    {with(chief_and_two, place("chief", "0")), 3, 0, chief_and_two},
    {with(chief_and_two, place("chief", R"("auto")")), 3, 0, chief_and_two},
    {with(chief_and_two, place("worker", "0")), 3, 1, chief_and_two},
    {with(chief_and_two, place("worker", "1")), 3, 2, chief_and_two},
    {with(chief_and_two, place("worker", R"("auto")")), 3, -1, chief_and_two},
    {with(R"({"worker":["b:1","a:1"]})", place("worker", "1")), 2, 1,
     R"({"worker":["b:1","a:1"]})"},
    {with(R"({"worker":["a:1"]})", place("worker", "0")), 1, 0, R"({"worker":["a:1"]})"},
    {with(R"({"chief":["a:1"]})", place("chief", "0")), 1, 0, R"({"chief":["a:1"]})"},
    {with(R"({"chief":["a:1"],"worker":["b:1"]})", place("worker", R"("auto")")), 2, -1,
     R"({"chief":["a:1"],"worker":["b:1"]})"},
    // Jobs that take no part in training. Their hosts are not checked, except for the evaluator's.
    {with(R"({"ps":["p:1","p:2"],"worker":["a:1","b:1"]})", place("worker", "1")), 2, 1, two, 2},
    {with(R"({"tester":[17],"worker":["a:1","b:1"],"ps":null})", place("worker", "0")), 2, 0, two,
     3},
    {with(R"({"evaluator":["e:1"],"worker":["a:1","b:1"]})", place("worker", "1")), 2, 1,
     R"({"evaluator":["e:1"],"worker":["a:1","b:1"]})", 2},
    {with(R"({"evaluator":["e:1"],"chief":["c:1"],"worker":["a:1"]})", place("worker", "0")), 2, 1,
     R"({"chief":["c:1"],"evaluator":["e:1"],"worker":["a:1"]})", 2},
    // Index maps.
    {with(R"({"worker":{"0":"a:1","1":"b:1"}})", place("worker", "1")), 2, 1, two},
    {with(R"({"worker":{"1":"b:1","0":"a:1"}})", place("worker", "1")), 2, 1, two},
    {with(R"({"chief":{"0":"c:1"},"worker":["a:1","b:1"]})", place("worker", "0")), 3, 1,
     chief_and_two},
    {R"({"sparseCluster":{"worker":{"0":"a:1","1":"b:1"}},"task":{"type":"worker","index":1}})", 2,
     1, two},
    {R"({"sparseCluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":0}})", 2, 0, two},
    // Kubeflow's keys, and others that TensorFlow reads or ignores.
    {R"({"cluster":{"worker":["job-worker-0.ns.svc:2222","job-worker-1.ns.svc:2222"]},)"
     R"("task":{"type":"worker","index":0},"environment":"cloud"})",
     2, 0, R"({"worker":["job-worker-0.ns.svc:2222","job-worker-1.ns.svc:2222"]})", 2},
    {R"({"rpc_layer":"grpc",)" + with(two, place("worker", "0")).substr(1), 2, 0, two, 2},
    {R"({"session_master":"grpc://a:1",)" + with(two, place("worker", "0")).substr(1), 2, 0, two,
     2},
    {R"({"job":{"name":"x","deep":[[[[{}]]]]},)" + with(two, place("worker", "0")).substr(1), 2, 0,
     two, 2},
    {R"({"x":null,"y":-1.5e3,)" + with(two, place("worker", "0")).substr(1), 2, 0, two, 3},
    {with(two, R"({"type":"worker","index":0,"trial":"1"})"), 2, 0, two, 2},
    {with(two, R"({"type":"worker","index":0,"cloud":[1]})"), 2, 0, two, 2},
    // Addresses.
    {with(R"({"worker":["localhost:12345","localhost:23456"]})", place("worker", "1")), 2, 1,
     R"({"worker":["localhost:12345","localhost:23456"]})"},
    {with(R"({"worker":["127.0.0.1:1","127.0.0.1:2","127.0.0.1:3"]})", place("worker", "2")), 3, 2,
     R"({"worker":["127.0.0.1:1","127.0.0.1:2","127.0.0.1:3"]})"},
    {with(R"({"worker":["[::1]:1","[::1]:2"]})", place("worker", "1")), 2, 1,
     R"({"worker":["[::1]:1","[::1]:2"]})"},
    {with(R"({"worker":["[2001:DB8::1]:1","10.1.10.58:12345"]})", place("worker", "1")), 2, 1,
     R"({"worker":["[2001:db8::1]:1","10.1.10.58:12345"]})"},
    {with(R"({"worker":["[fe80::1%eth0]:1","[fe80::1%eth1]:1"]})", place("worker", "1")), 2, 1,
     R"({"worker":["[fe80::1%eth0]:1","[fe80::1%eth1]:1"]})"},
    {with(R"({"worker":["A:1","B.Example.Org:65535"]})", place("worker", "0")), 2, 0,
     R"({"worker":["a:1","b.example.org:65535"]})"},
    {with(R"({"worker":["my_host-1:1","9node:2"]})", place("worker", "0")), 2, 0,
     R"({"worker":["my_host-1:1","9node:2"]})"},
    {with(R"({"worker":["same:1","same:2"]})", place("worker", "0")), 2, 0,
     R"({"worker":["same:1","same:2"]})"},
    {with(R"({"worker":["127.0.0.1:1","10.0.0.2:1"]})", place("worker", "0")), 2, 0,
     R"({"worker":["127.0.0.1:1","10.0.0.2:1"]})", 2},
    // Variants that JSON allows.
    {" \t\r\n" + with(two, place("worker", "0")) + "\n\n", 2, 0, two},
    {with("{\n  \"worker\": [\n    \"a:1\",\n    \"b:1\"\n  ]\n}", place("worker", "0")), 2, 0,
     two},
    {with(R"({"w\u006frker":["\u0061:1","b:1"]})", place("worker", "0")), 2, 0, two},
    {with(two, place("worker", "-0")), 2, 0, two},
    {R"({"task":{"type":"worker","index":0},"cluster":{"worker":["a:1","b:1"]}})", 2, 0, two},
    {R"({"ключ":1,)" + with(two, place("worker", "0")).substr(1), 2, 0, two, 2},
};

}  // namespace

TEST_CASE("a valid TF_CONFIG describes the cluster and this process' rank") {
  STATIC_CHECK(std::size(rows) >= 40);
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const auto job =
        lockstep::resolve_cluster(cluster_test::environment({{"TF_CONFIG", row.text}}));
    CHECK(job.source == "TF_CONFIG");
    CHECK(job.world_size == row.world);
    CHECK((job.rank ? static_cast<int>(*job.rank) : -1) == row.rank);
    CHECK(job.is_chief() == (row.rank == 0));
    const bool has_zone = std::string_view(row.json).find('%') != std::string_view::npos;
    CHECK((has_zone || job.description() == row.json));
    CHECK(job.cluster.value().json() == row.json);
    CHECK(job.chief == job.cluster->address(0));
    CHECK(job.job_id.empty());
    CHECK(job.notes.size() == row.notes);
    for (const std::string& note : job.notes) CHECK(cluster_test::fit_to_print(note));
  }
}

TEST_CASE("the TF_CONFIG of a TFJob with parameter servers describes each of its pods") {
  // Of packaging/deployment/tfjob-servers.yaml; tests/packaging/deployment.py compares the two.
  const std::string cluster =
      R"({"chief":["mnist-chief-0.default.svc:2222"],)"
      R"("ps":["mnist-ps-0.default.svc:2222","mnist-ps-1.default.svc:2222"],)"
      R"("worker":["mnist-worker-0.default.svc:2222","mnist-worker-1.default.svc:2222",)"
      R"("mnist-worker-2.default.svc:2222","mnist-worker-3.default.svc:2222"]})";
  const std::pair<std::string, std::size_t> tasks[] = {{"chief", 1}, {"worker", 4}, {"ps", 2}};
  std::size_t rank = 0;
  for (const auto& [type, count] : tasks)
    for (std::size_t i = 0; i < count; ++i, ++rank) {
      const std::string task = place(type, std::to_string(i));
      const std::string text =
          R"({"cluster":)" + cluster + R"(,"task":)" + task + R"(,"environment":"cloud"})";
      CAPTURE(text);
      const auto job = lockstep::resolve_cluster(cluster_test::environment({{"TF_CONFIG", text}}),
                                                 {.has_servers = true});
      CHECK(job.world_size == 7);
      CHECK(job.rank == rank);
      CHECK(job.is_chief() == (type == "chief"));
      CHECK(to_string(job.chief.value()) == "mnist-chief-0.default.svc:2222");
      CHECK(to_string(job.cluster->address(rank)) ==
            "mnist-" + type + "-" + std::to_string(i) + ".default.svc:2222");
      REQUIRE(job.notes.size() == 2);
      CHECK(job.notes[1].find("\"environment\" is not known to lockstep") != std::string::npos);
    }
}

TEST_CASE("unknown keys of TF_CONFIG are named") {
  const auto config = lockstep::parse_tf_config(
      R"({"rpc_layer":"grpc","task":{"type":"worker","index":0,"trial":1}})");
  REQUIRE(config.notes.size() == 2);
  CHECK(config.notes[0] == "TF_CONFIG: \"rpc_layer\" is not known to lockstep and is ignored");
  CHECK(config.notes[1] == "TF_CONFIG: task.\"trial\" is not known to lockstep and is ignored");
}

TEST_CASE("jobs of TF_CONFIG that take no part in training are named") {
  const auto config = lockstep::parse_tf_config(
      R"({"cluster":{"evaluator":["e:1"],"ps":["p:1"],"side car":["s"],"worker":["a:1"]}})");
  CHECK(config.cluster.value().json() == R"({"evaluator":["e:1"],"worker":["a:1"]})");
  CHECK(config.other_jobs == std::vector<std::string>{"evaluator", "ps", "side car"});
  REQUIRE(config.notes.size() == 3);
  CHECK(config.notes[0] ==
        "TF_CONFIG: cluster: the job \"evaluator\" takes no part in training and is ignored");
  CHECK(config.notes[1] ==
        "TF_CONFIG: cluster: the job \"ps\" takes no part in training and is ignored: workers "
        "exchange gradients without parameter servers");
  CHECK(config.notes[2] ==
        "TF_CONFIG: cluster: the job \"side car\" takes no part in training and is ignored");
  // A cluster file is lockstep's own, so an unknown job is a mistake.
  CHECK(cluster_test::sentence([] {
          lockstep::parse_cluster(R"({"side car":["s:1"],"worker":["a:1"]})", "hosts.json");
        }).find("hosts.json: the key \"side car\" is not a task type") == 0);
}

TEST_CASE("hostile JSON uses neither stack nor much memory") {
  // Deep nesting below an ignored key: neither parsing nor destruction may recurse.
  const std::string deep(400'000, '[');
  const std::string text =
      R"({"x":)" + deep + std::string(400'000, ']') + R"(,"cluster":{"worker":["a:1"]}})";
  CHECK(lockstep::parse_tf_config(text).cluster->world_size() == 1);
  std::string many = R"({"cluster":{"worker":["a:1")";
  while (many.size() < 1'000'000) many += ",0";
  CHECK(cluster_test::sentence([&] {
          lockstep::parse_tf_config(many + "]}}");
        }).starts_with("TF_CONFIG: cluster.worker[1] is a number"));
}

TEST_CASE("a cluster of the maximum size is parsed and checked in reasonable time") {
  std::string text = R"({"worker":["n0:1")";
  for (int i = 1; i < 60'000; ++i) text += ",\"n" + std::to_string(i) + ":1\"";
  const auto cluster = lockstep::parse_cluster(text + "]}", "text");
  CHECK(cluster.world_size() == 60'000);
  CHECK(to_string(cluster.address(59'999)) == "n59999:1");
}

TEST_CASE("a cluster file holds the value of TF_CONFIG's cluster") {
  const auto path = std::filesystem::temp_directory_path() / "lockstep_cluster_file.json";
  const auto write = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  };
  const std::string name = path.string();
  write(std::string(chief_and_two) + "\n");
  CHECK(lockstep::read_cluster_file(name).json() == chief_and_two);
  const auto message = [&] {
    return cluster_test::sentence([&] { lockstep::read_cluster_file(name); });
  };
  write(R"({"worker":["a:1","b"]})");
  CHECK(message() == name + ": worker[1] \"b\" has no port; write \"b:12345\"");
  write(with(two, place("worker", "0")));
  CHECK(message().starts_with(name + " has the key \"cluster\"; it must hold only what stands at"));
  write("");
  CHECK(message() == name + " is empty; write a JSON object");
  write(std::string(2'000'000, ' '));
  CHECK(message().find("the maximum is 1048576") != std::string::npos);
  write("{'worker': ['a:1']}");
  CHECK(message().find("single quotes") != std::string::npos);
  std::filesystem::remove(path);
  CHECK_THROWS_AS(lockstep::read_cluster_file(name), lockstep::FileError);
  CHECK_THROWS_AS(lockstep::read_cluster_file(std::filesystem::temp_directory_path().string()),
                  lockstep::FileError);
}
