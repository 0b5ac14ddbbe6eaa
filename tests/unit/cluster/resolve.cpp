#include "lockstep/cluster/resolve.hpp"

#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/settings.hpp"
#include "unit/cluster/support.hpp"

namespace {

using cluster_test::Variables;
using lockstep::ClusterArguments;
using lockstep::ClusterSpec;
using lockstep::ResolvedCluster;
using lockstep::Task;
using lockstep::TaskType;

/// A complete description from each source, in order of precedence.
struct Source {
  const char *name, *launcher;
  Variables (*variables)(std::size_t rank, std::size_t world);
};

std::string number(std::size_t n) { return fmt::format("{}", n); }

Variables tf_config(std::size_t rank, std::size_t world) {
  ClusterSpec cluster;
  for (std::size_t i = 0; i < world; ++i) cluster.worker(fmt::format("10.0.0.{}:1", i + 1));
  return {{"TF_CONFIG", cluster.tf_config({TaskType::worker, rank})}};
}

const std::vector<Source> sources{
    {"LOCKSTEP_WORLD_SIZE", "",
     [](std::size_t rank, std::size_t world) -> Variables {
       return {{"LOCKSTEP_WORLD_SIZE", number(world)},
               {"LOCKSTEP_RANK", number(rank)},
               {"LOCKSTEP_COORDINATOR", "c:1"}};
     }},
    {"TF_CONFIG", "tf_config", tf_config},
    {"torchrun", "torchrun",
     [](std::size_t rank, std::size_t world) -> Variables {
       return {{"RANK", number(rank)}, {"WORLD_SIZE", number(world)}, {"MASTER_ADDR", "t"}};
     }},
    {"Open MPI", "mpi",
     [](std::size_t rank, std::size_t world) -> Variables {
       return {{"OMPI_COMM_WORLD_RANK", number(rank)},
               {"OMPI_COMM_WORLD_SIZE", number(world)},
               {"MASTER_ADDR", "t"}};
     }},
    {"Slurm", "slurm",
     [](std::size_t rank, std::size_t world) -> Variables {
       return {{"SLURM_STEP_ID", "0"},
               {"SLURM_JOB_ID", "1"},
               {"SLURM_PROCID", number(rank)},
               {"SLURM_NTASKS", number(world)},
               {"SLURM_STEP_NODELIST", "s[1-9]"}};
     }},
    {"PMI", "pmi", [](std::size_t rank, std::size_t world) -> Variables {
       return {{"PMI_RANK", number(rank)}, {"PMI_SIZE", number(world)}, {"MASTER_ADDR", "t"}};
     }}};

Variables both(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}
ResolvedCluster resolve(const Variables& variables, const ClusterArguments& arguments = {}) {
  return lockstep::resolve_cluster(cluster_test::environment(variables), arguments);
}
std::string refusal(const Variables& variables, const ClusterArguments& arguments = {}) {
  const std::string message = cluster_test::sentence([&] { resolve(variables, arguments); });
  CHECK(cluster_test::fit_to_print(message));
  return message;
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("each source describes the job on its own, and is reported") {
  for (const Source& source : sources) {
    CAPTURE(source.name);
    const auto job = resolve(source.variables(1, 3));
    CHECK(job.source == source.name);
    CHECK(job.rank == 1);
    CHECK(job.world_size == 3);
    CHECK(job.chief);
    CHECK(job.notes.front().starts_with(std::string("the cluster comes from ") + source.name +
                                        ": this process is rank 1 of 3, the chief is at "));
  }
}

TEST_CASE("of two sources that agree, the one with precedence is used") {
  for (std::size_t strong = 0; strong < sources.size(); ++strong) {
    for (std::size_t weak = strong + 1; weak < sources.size(); ++weak) {
      CAPTURE(sources[strong].name, sources[weak].name);
      const auto job =
          resolve(both(sources[strong].variables(1, 3), sources[weak].variables(1, 3)));
      CHECK(job.source == sources[strong].name);
      CHECK(job.notes.size() == 1);
    }
  }
}

TEST_CASE("two sources that differ in rank or world size are refused, and both are named") {
  for (std::size_t strong = 0; strong < sources.size(); ++strong) {
    for (std::size_t weak = strong + 1; weak < sources.size(); ++weak) {
      CAPTURE(sources[strong].name, sources[weak].name);
      for (const auto& [rank, world] : {std::pair{0, 3}, std::pair{1, 4}}) {
        const auto other = sources[weak].variables(static_cast<std::size_t>(rank),
                                                   static_cast<std::size_t>(world));
        const std::string message = refusal(both(sources[strong].variables(1, 3), other));
        CHECK(contains(
            message, std::string(sources[strong].name) + " describes this process as rank 1 of 3"));
        CHECK(contains(message,
                       fmt::format("{} as rank {} of {};", sources[weak].name, rank, world)));
        CHECK(contains(message, "LOCKSTEP_LAUNCHER="));
      }
    }
  }
}

namespace {

/// A launcher's process in a world, of which `local_size` are on this node.
Variables launched(const Source& source, std::size_t rank, std::size_t world,
                   std::size_t local_size) {
  Variables variables = source.variables(rank, world);
  const std::string name = source.name, local = number(local_size);
  if (name == "torchrun") variables["LOCAL_WORLD_SIZE"] = local;
  if (name == "Open MPI") variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = local;
  if (name == "PMI") variables["MPI_LOCALNRANKS"] = local;
  if (name == "Slurm") {
    const std::size_t nodes = world / local_size;
    variables["SLURM_STEP_NODELIST"] = nodes == 1 ? "s1" : fmt::format("s[1-{}]", nodes);
    variables["SLURM_STEP_TASKS_PER_NODE"] = fmt::format("{}(x{})", local_size, nodes);
    variables["SLURM_NODEID"] = number(rank / local_size);
  }
  if (name == "TF_CONFIG") {
    ClusterSpec cluster;
    for (std::size_t i = 0; i < world; ++i)
      cluster.worker(fmt::format("10.0.0.{}:{}", i / local_size + 1, i + 1));
    variables["TF_CONFIG"] = cluster.tf_config({TaskType::worker, rank});
  }
  return variables;
}

}  // namespace

TEST_CASE("of a launcher inside a launcher, the inner one's processes are the workers") {
  // The outer launcher has one process on each of 3 nodes. Each starts an inner one with 2, which
  // spans all nodes, or only its own.
  for (const Source& outer : sources) {
    for (const Source& inner : sources) {
      if (outer.name == inner.name || *outer.launcher == '\0' || *inner.launcher == '\0') continue;
      CAPTURE(outer.name, inner.name);
      for (std::size_t rank = 0; rank < 6; ++rank) {
        const auto job =
            resolve(both(launched(inner, rank, 6, 2), launched(outer, rank / 2, 3, 1)));
        CHECK(job.source == inner.name);
        CHECK(job.rank == rank);
        CHECK(job.world_size == 6);
        CHECK(contains(job.notes.at(1),
                       fmt::format("{} (rank {} of 3) has started {}, whose processes are the",
                                   outer.name, rank / 2, inner.name)));
        const auto own =
            resolve(both(launched(inner, rank % 2, 2, 2), launched(outer, rank / 2, 3, 1)));
        CHECK(own.source == inner.name);
        CHECK(own.rank == rank % 2);
      }
      // One process more on one of the nodes: on the others, only the world is larger. TF_CONFIG
      // counts no processes.
      const auto more = both(launched(inner, 3, 4, 1), launched(outer, 2, 3, 1));
      if (&outer == &sources[1] || &inner == &sources[1])
        CHECK(contains(refusal(more), "LOCKSTEP_LAUNCHER="));
      else
        CHECK(resolve(more).rank == 3);
      // Equal sizes with other ranks are a contradiction.
      const auto equal = both(launched(inner, 1, 3, 1), launched(outer, 2, 3, 1));
      CHECK(contains(refusal(equal), "LOCKSTEP_LAUNCHER="));
      // The exception is torchrun, which sorts the nodes in another way than srun.
      const auto by_agent = both(equal, {{"TORCHELASTIC_RUN_ID", "none"}});
      if (std::string_view(inner.name) == "torchrun" && &outer != &sources[1])
        CHECK(resolve(by_agent).rank == 1);
      else if (std::string_view(outer.name) != "torchrun" || &inner == &sources[1])
        CHECK(contains(refusal(by_agent), "LOCKSTEP_LAUNCHER="));
    }
  }
  const auto agreed =
      resolve(both(both(launched(sources[2], 2, 3, 1), launched(sources[4], 2, 3, 1)),
                   {{"TORCHELASTIC_RUN_ID", "none"}}));
  CHECK(agreed.source == "torchrun");
  CHECK(agreed.notes.size() == 1);
}

TEST_CASE("an inner launcher without an address is an error, not a reason to take the outer one") {
  auto variables = both(launched(sources[5], 4, 6, 2), launched(sources[4], 2, 3, 1));
  variables.erase("MASTER_ADDR");
  CHECK(refusal(variables) ==
        "PMI gives no address for rank 0; set LOCKSTEP_COORDINATOR=HOST:PORT on all ranks; Slurm "
        "(rank 2 of 3) has started it");
  variables["SLURM_JOB_NODELIST"] = "s[1-3]";
  CHECK(resolve(variables).source == "PMI");
}

TEST_CASE("variables that Kubernetes sets for a Service of the same name are noted and ignored") {
  // Services `lockstep`, `master` and `pet-master`.
  for (const char* name : {"LOCKSTEP_PORT", "MASTER_PORT", "PET_MASTER_PORT"}) {
    CAPTURE(name);
    for (const char* value :
         {"tcp://10.96.3.7:12345", "udp://10.96.3.7:53", "sctp://[fd00::1]:1"}) {
      const auto job = resolve(both(sources[2].variables(1, 3), {{name, value}}));
      CHECK(job.chief == lockstep::HostPort{"t", 29'500});
      CHECK(contains(job.notes.at(1), fmt::format("ignored: {}=\"{}\", which Kubernetes sets for a "
                                                  "Service",
                                                  name, value)));
    }
  }
  CHECK(resolve(both(sources[1].variables(1, 3), {{"LOCKSTEP_SERVICE_HOST", "10.96.3.7"},
                                                  {"LOCKSTEP_SERVICE_PORT", "12345"},
                                                  {"LOCKSTEP_PORT_12345_TCP_PORT", "12345"}}))
            .notes.size() == 1);
  CHECK(contains(refusal({{"LOCKSTEP_PORT", "http://10.96.3.7"}}), "LOCKSTEP_PORT has the port"));
}

TEST_CASE("link-local addresses are equal on machines whose interfaces have other names") {
  const auto described = [](const char* zone) {
    return resolve(
        {{"TF_CONFIG",
          fmt::format(R"({{"cluster":{{"worker":["[fe80::1%{0}]:1","[fe80::2%{0}]:1"]}},)"
                      R"("task":{{"type":"worker","index":1}}}})",
                      zone)}});
  };
  CHECK(described("eth0").description() == described("enp1s0").description());
  CHECK(described("eth0").description() == R"({"worker":["[fe80::1]:1","[fe80::2]:1"]})");
  CHECK(described("eth0").chief->host == "fe80::1%eth0");
  const auto coordinator = [](const char* address) {
    return resolve({{"LOCKSTEP_WORLD_SIZE", "2"},
                    {"LOCKSTEP_RANK", "1"},
                    {"LOCKSTEP_COORDINATOR", address}})
        .description();
  };
  CHECK(coordinator("[fe80::1%eth0]:1") == coordinator("[fe80::1%enp1s0]:1"));
}

TEST_CASE("LOCKSTEP_LAUNCHER selects one of two contradictory sources") {
  for (const Source& picked : sources) {
    if (*picked.launcher == '\0') continue;
    for (const Source& other : sources) {
      if (*other.launcher == '\0' || other.name == picked.name) continue;
      CAPTURE(picked.name, other.name);
      auto variables = both(picked.variables(1, 3), other.variables(2, 4));
      variables["LOCKSTEP_LAUNCHER"] = picked.launcher;
      const auto job = resolve(variables);
      CHECK(job.source == picked.name);
      CHECK(job.rank == 1);
      CHECK(job.world_size == 3);
    }
  }
}

TEST_CASE("LOCKSTEP_LAUNCHER=mpi also reads PMI variables, and none reads nothing") {
  auto variables = sources[5].variables(1, 3);
  variables["LOCKSTEP_LAUNCHER"] = "mpi";
  CHECK(resolve(variables).source == "PMI");
  variables["LOCKSTEP_LAUNCHER"] = "none";
  const auto alone = resolve(variables);
  CHECK(alone.source == "single process");
  CHECK(alone.world_size == 1);
  CHECK(alone.is_chief());
  variables["LOCKSTEP_LAUNCHER"] = "torchrun";
  CHECK(contains(refusal(variables),
                 "LOCKSTEP_LAUNCHER=torchrun is set, but the variables of that "
                 "launcher are not; set TF_CONFIG"));
  variables["LOCKSTEP_LAUNCHER"] = "ssh";
  CHECK(
      contains(refusal(variables), "LOCKSTEP_LAUNCHER=\"ssh\" is not a launcher; write tf_config"));
}

TEST_CASE("without a description the error names TF_CONFIG, unless a single worker is permitted") {
  CHECK(refusal({}) ==
        "no cluster is described: set TF_CONFIG, or describe it in the program (.cluster = "
        "{.cluster = spec, .task = task}), or start the program with lockstep-run, torchrun, "
        "mpirun or srun; .cluster = {.allow_single = true} permits a single worker");
  // A program whose user sets both by options names those options.
  CHECK(refusal({}, {.options = "--cluster FILE and --task worker:0"}) ==
        "no cluster is described: set TF_CONFIG, or give --cluster FILE and --task worker:0, or "
        "start the program with lockstep-run, torchrun, mpirun or srun");
  for (const char* text : {"{}", " {} "}) {
    CAPTURE(text);
    CHECK(refusal({{"TF_CONFIG", text}}).starts_with("no cluster is described: set TF_CONFIG"));
  }
  CHECK(refusal({{"TF_CONFIG", ""}})
            .starts_with("no cluster is described: TF_CONFIG is empty; set TF_CONFIG"));
  CHECK(refusal({{"TF_CONFIG", " \t\n"}})
            .starts_with("no cluster is described: TF_CONFIG contains only blanks; set TF_CONFIG"));
  CHECK(contains(
      refusal(
          {{"LOCKSTEP_WORLD_SIZE", "2"}, {"LOCKSTEP_RANK", ""}, {"LOCKSTEP_COORDINATOR", "a:1"}}),
      "LOCKSTEP_RANK is empty; set TF_CONFIG"));
  CHECK(contains(
      refusal({{"LOCKSTEP_WORLD_SIZE", "2"}, {"LOCKSTEP_RANK", "0"}, {"LOCKSTEP_COORDINATOR", ""}}),
      "LOCKSTEP_COORDINATOR is empty; set TF_CONFIG"));
  // Another launcher is chosen, so TF_CONFIG is not what is wrong.
  CHECK_FALSE(contains(refusal({{"TF_CONFIG", ""}, {"LOCKSTEP_LAUNCHER", "torchrun"}}),
                       "TF_CONFIG is empty"));
  CHECK(resolve({{"TF_CONFIG", " "}}, {.allow_single = true}).source == "single process");
  const auto alone = resolve({}, {.allow_single = true});
  CHECK(alone.source == "single process");
  CHECK(alone.world_size == 1);
  CHECK(alone.rank == 0);
  CHECK(alone.local_size == 1);
  CHECK_FALSE(alone.chief);
  CHECK(alone.notes == std::vector<std::string>{"no cluster: this process trains alone"});
  CHECK(contains(refusal({{"LOCKSTEP_RANK", "0"}}),
                 "LOCKSTEP_RANK also needs LOCKSTEP_WORLD_SIZE and LOCKSTEP_COORDINATOR"));
}

TEST_CASE("a single worker is not permitted if a source describes several") {
  const ClusterArguments arguments{.allow_single = true};
  CHECK(contains(refusal({{"WORLD_SIZE", "2"}}, arguments), "torchrun: WORLD_SIZE is set"));
  CHECK(contains(refusal({{"PMI_SIZE", "2"}}, arguments), "PMI: a size is set"));
  CHECK(contains(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}}, arguments),
                 "Open MPI gives no address for rank 0"));
  CHECK(contains(refusal({{"TF_CONFIG", R"({"cluster":{"worker":["a:1","b:1"]}})"}}, arguments),
                 "no task for this process"));
  CHECK(contains(refusal({{"LOCKSTEP_LAUNCHER", "slurm"}}, arguments), "LOCKSTEP_LAUNCHER=slurm"));
  // PMIx also sets a rank for a single process, so a rank alone does not imply other workers.
  CHECK(resolve({{"PMIX_RANK", "0"}}, arguments).source == "single process");
}

TEST_CASE("an incomplete source is ignored with a note, an invalid one is an error") {
  // Complete except for RANK.
  auto variables = both(tf_config(1, 3), {{"WORLD_SIZE", "3"}});
  auto job = resolve(variables);
  CHECK(job.source == "TF_CONFIG");
  REQUIRE(job.notes.size() == 2);
  CHECK(job.notes[1] ==
        "ignored: torchrun: WORLD_SIZE is set, but RANK is not; start the program "
        "with torchrun, or set RANK");
  // An incomplete source yields to a complete one of lower precedence.
  variables =
      both({{"TF_CONFIG", R"({"task":{"type":"worker","index":0}})"}}, sources[2].variables(1, 3));
  job = resolve(variables);
  CHECK(job.source == "torchrun");
  CHECK(contains(job.notes.at(1), "ignored: TF_CONFIG has no \"cluster\""));
  // An invalid source does not.
  variables["TF_CONFIG"] = "{'cluster'";
  CHECK(contains(refusal(variables), "TF_CONFIG is not valid JSON"));
  // An invalid source of lower precedence is only noted.
  variables = both(tf_config(1, 3), {{"WORLD_SIZE", "many"}});
  job = resolve(variables);
  CHECK(job.source == "TF_CONFIG");
  CHECK(contains(job.notes.at(1), "ignored: WORLD_SIZE=\"many\" is not a non-negative integer"));
}

TEST_CASE("the program's own cluster and task override the environment") {
  ClusterArguments arguments;
  arguments.cluster = ClusterSpec{}.chief("c:1").worker("w:1");
  arguments.task = Task{TaskType::worker, 0};
  arguments.cluster_name = "--cluster hosts.json";
  arguments.task_name = "--task";
  for (const Source& source : sources) {
    CAPTURE(source.name);
    auto variables = source.variables(2, 4);
    variables.erase("LOCKSTEP_COORDINATOR");
    const auto job = resolve(variables, arguments);
    CHECK(job.source == "--cluster hosts.json");
    CHECK(job.rank == 1);
    CHECK(job.world_size == 2);
    CHECK(job.chief == lockstep::HostPort{"c", 1});
  }
  CHECK(resolve({{"TF_CONFIG", "{'"}}, arguments).rank == 1);
  CHECK(contains(resolve({{"LOCKSTEP_RANK", "0"}}, arguments).notes.at(1),
                 "LOCKSTEP_RANK=0 is ignored: --cluster hosts.json gives rank 1 of 2"));

  arguments.task = Task{TaskType::worker, 1};
  CHECK(refusal({}, arguments) == "--task 1 is out of range: cluster.worker has 1 host; write 0");
  arguments.task = Task{TaskType::evaluator, 0};
  CHECK(contains(refusal({}, arguments), "--task is evaluator: an evaluator runs separately"));
  arguments.task.reset();
  CHECK(contains(refusal({}, arguments),
                 "--cluster hosts.json has a cluster, but no task for this "
                 "process; write \"task\":{\"type\":\"worker\",\"index\":0} into TF_CONFIG, or "
                 "name it in the program (.cluster = {.task = task}), or set LOCKSTEP_RANK"));
  arguments.options = "--cluster FILE and --task worker:0";
  CHECK(contains(refusal({}, arguments), "into TF_CONFIG, or give --task worker:0, or set"));
  CHECK(resolve({{"LOCKSTEP_RANK", "1"}}, arguments).rank == 1);
  CHECK(contains(refusal({{"LOCKSTEP_RANK", "2"}}, arguments),
                 "LOCKSTEP_RANK=2 is out of range for"));
  arguments.cluster->add(TaskType::ps, "p:1");
  CHECK(contains(refusal({{"LOCKSTEP_RANK", "1"}}, arguments),
                 "--cluster hosts.json has the job ps: parameter servers"));
}

TEST_CASE("parameter servers are the last ranks of a job whose strategy has some") {
  const std::string jobs = R"({"cluster":{"chief":["c:1"],"ps":["p:1","p:2"],"worker":["w:1"]})";
  const auto with = [&](const std::string& task) {
    return Variables{{"TF_CONFIG", jobs + R"(,"task":)" + task + "}"}};
  };
  ClusterArguments servers;
  servers.has_servers = true;
  const auto first = resolve(with(R"({"type":"ps","index":0})"), servers);
  CHECK(first.world_size == 4);
  CHECK(first.rank == 2);
  CHECK(first.name(3) == "rank 3 (ps:1, p:2)");
  CHECK(resolve(with(R"({"type":"worker","index":0})"), servers).rank == 1);
  CHECK(resolve(with(R"({"type":"chief","index":0})"), servers).rank == 0);
  CHECK(first.cluster->ranks(TaskType::ps) == lockstep::Slice{2, 2});
  CHECK(first.cluster->ranks(TaskType::worker) == lockstep::Slice{1, 1});
  // Programs with other strategies ignore them.
  CHECK(resolve(with(R"({"type":"worker","index":0})")).world_size == 2);
  CHECK(contains(refusal(with(R"({"type":"ps","index":0})")),
                 "task.type is ps: parameter servers need the strategy ls::ParameterServer"));

  CHECK(contains(refusal(with(R"({"type":"worker","index":"auto"})"), servers),
                 "task.index is auto: a job with parameter servers needs the index of each task"));
  CHECK(contains(refusal(with(R"({"type":"ps","index":2})"), servers),
                 "task.index 2 is out of range: cluster.ps has 2 hosts; write 0 to 1"));
  const auto without = [&](const std::string& cluster) {
    return Variables{
        {"TF_CONFIG", R"({"cluster":)" + cluster + R"(,"task":{"type":"chief","index":0}})"}};
  };
  CHECK(contains(refusal(without(R"({"chief":["c:1"],"worker":["w:1"]})"), servers),
                 "TF_CONFIG: cluster has no ps; list at least one parameter server"));
  CHECK(contains(refusal(without(R"({"chief":["c:1"],"ps":["p:1"]})"), servers),
                 "TF_CONFIG: cluster has no worker: the chief and parameter servers compute no"));
}

TEST_CASE("a task without a cluster refers to the cluster in TF_CONFIG") {
  ClusterArguments arguments;
  arguments.task = Task{TaskType::worker, 2};
  arguments.task_name = "--task";
  const auto job = resolve(tf_config(1, 3), arguments);
  CHECK(job.source == "TF_CONFIG");
  CHECK(job.rank == 2);
  CHECK(resolve(both(tf_config(1, 3), {{"LOCKSTEP_RANK", "0"}}), arguments).rank == 2);
  CHECK(refusal({}, arguments).find("TF_CONFIG") != std::string::npos);
  CHECK(contains(
      refusal(sources[2].variables(1, 3), arguments),
      "--task worker:2 is a task in a cluster, but no cluster is described; describe it in "
      "the program (.cluster = {.cluster = spec, .task = task}), or set TF_CONFIG"));
  CHECK(contains(refusal({{"LOCKSTEP_LAUNCHER", "none"}}, arguments), "--task worker:2"));
  arguments.task = Task{TaskType::worker, 3};
  CHECK(contains(refusal(tf_config(1, 3), arguments), "--task 3 is out of range"));
}

TEST_CASE("LOCKSTEP_RANK sets an open rank and must equal a given one") {
  const std::string cluster = R"({"cluster":{"worker":["a:1","b:1","c:1"]})";
  const std::string automatic = cluster + R"(,"task":{"type":"worker","index":"auto"}})";
  CHECK_FALSE(resolve({{"TF_CONFIG", automatic}}).rank);
  CHECK(resolve({{"TF_CONFIG", automatic}, {"LOCKSTEP_RANK", "2"}}).rank == 2);
  CHECK(resolve({{"TF_CONFIG", cluster + "}"}, {"LOCKSTEP_RANK", "0"}}).is_chief());
  CHECK(contains(refusal({{"TF_CONFIG", cluster + "}"}, {"LOCKSTEP_RANK", "3"}}),
                 "LOCKSTEP_RANK=3 is out of range for"));
  CHECK(resolve(both(tf_config(1, 3), {{"LOCKSTEP_RANK", "1"}})).rank == 1);
  CHECK(
      contains(refusal(both(tf_config(1, 3), {{"LOCKSTEP_RANK", "2"}})),
               "LOCKSTEP_RANK=2, but TF_CONFIG describes this process as rank 1 of 3; unset one"));
  CHECK(contains(refusal(both(sources[2].variables(1, 3), {{"LOCKSTEP_RANK", "2"}})),
                 "LOCKSTEP_RANK=2, but torchrun describes this process as rank 1 of 3"));
  CHECK(contains(refusal({{"TF_CONFIG", R"({"cluster":{"chief":["c:1"],"worker":["a:1"]},)"
                                        R"("task":{"type":"worker","index":"auto"}})"},
                          {"LOCKSTEP_RANK", "0"}}),
                 "task.type is worker, but LOCKSTEP_RANK=0 is the chief"));
}

TEST_CASE(
    "LOCKSTEP_JOB_ID overrides the launcher's id, and without an id the description is used") {
  CHECK(resolve(both(sources[4].variables(1, 3), {{"LOCKSTEP_JOB_ID", "mine"}})).job_id == "mine");
  CHECK(resolve(sources[4].variables(1, 3)).job_id == "1.0");
  // The workers of a TF_CONFIG may span several Slurm steps, so a step's id is not the job's.
  const auto job = resolve(both(tf_config(1, 3), sources[4].variables(1, 3)));
  CHECK(job.job_id.empty());
  CHECK(job.description() == R"({"worker":["10.0.0.1:1","10.0.0.2:1","10.0.0.3:1"]})");
  const std::string long_id(129, 'x');
  for (const std::string& id :
       {std::string("a b"), std::string("a\n"), std::string("\xc3\xb6"), long_id}) {
    CHECK(contains(refusal(both(tf_config(1, 3), {{"LOCKSTEP_JOB_ID", id}})),
                   "is not a valid job id; use at most 128 printable characters"));
  }
}

TEST_CASE("LOCKSTEP_PORT and LOCKSTEP_COORDINATOR replace the chief's address") {
  auto job = resolve(both(tf_config(1, 3), {{"LOCKSTEP_PORT", "7000"}}));
  CHECK(job.chief == lockstep::HostPort{"10.0.0.1", 7'000});
  job = resolve(both(tf_config(1, 3), {{"LOCKSTEP_COORDINATOR", "gate:7000"}}));
  CHECK(job.chief == lockstep::HostPort{"gate", 7'000});
  CHECK(contains(job.notes.at(1),
                 "LOCKSTEP_COORDINATOR gate:7000 replaces the chief's address "
                 "10.0.0.1:1"));
  CHECK(resolve(both(tf_config(1, 3),
                     {{"LOCKSTEP_COORDINATOR", "gate:7000"}, {"LOCKSTEP_PORT", "7000"}}))
            .chief == lockstep::HostPort{"gate", 7'000});
  CHECK(refusal({{"LOCKSTEP_COORDINATOR", "gate:7000"}, {"LOCKSTEP_PORT", "7001"}}) ==
        "LOCKSTEP_COORDINATOR \"gate:7000\" and LOCKSTEP_PORT 7001 give different ports for the "
        "chief; unset one of them");
  CHECK(contains(refusal({{"LOCKSTEP_COORDINATOR", "gate"}}),
                 "LOCKSTEP_COORDINATOR \"gate\" has no port; write \"gate:12345\""));
  CHECK(contains(refusal({{"LOCKSTEP_PORT", "0"}}), "LOCKSTEP_PORT has the port \"0\""));
}

TEST_CASE("LOCKSTEP_BIND is an address, with or without a port") {
  const auto bind = [](const char* text) {
    return resolve(both(tf_config(1, 3), {{"LOCKSTEP_BIND", text}})).bind.value();
  };
  CHECK(bind("0.0.0.0") == lockstep::BindAddress{"0.0.0.0", {}});
  CHECK(bind("0.0.0.0:80") == lockstep::BindAddress{"0.0.0.0", std::uint16_t{80}});
  CHECK(bind("::") == lockstep::BindAddress{"::", {}});
  CHECK(bind("[::]") == lockstep::BindAddress{"::", {}});
  CHECK(bind("[::1]:80") == lockstep::BindAddress{"::1", std::uint16_t{80}});
  CHECK_FALSE(resolve(tf_config(1, 3)).bind);
  for (const char* text : {":80", "a b", "host:x", "host:0", "1.2.3"})
    CHECK(contains(refusal({{"LOCKSTEP_BIND", text}}), "LOCKSTEP_BIND=\""));
}

TEST_CASE(
    "LOCKSTEP_DATA_ADDRESS is an address in numbers, LOCKSTEP_DATA_PORTS one port or a range") {
  const auto resolved = [](const char* name, const char* text) {
    return resolve(both(tf_config(1, 3), {{name, text}}));
  };
  const auto address = [&](const char* text) {
    return resolved("LOCKSTEP_DATA_ADDRESS", text).data_address.value();
  };
  CHECK(address("10.0.0.7") == "10.0.0.7");
  CHECK(address("FD00::07") == "fd00::7");
  CHECK(address("[fd00::7]") == "fd00::7");
  const std::pair<const char*, const char*> wrong_addresses[] = {
      {"node0",
       "LOCKSTEP_DATA_ADDRESS=\"node0\" is a host name; write a numeric address of this machine, "
       "such as 10.0.0.7"},
      {"eth0", "is a host name; write a numeric address"},
      {"0.0.0.0",
       "is a wildcard address; write the address at which the other machines reach this one"},
      {"::", "is a wildcard address"},
      {"1.2.3", "is not a valid IPv4 address"},
      {"10.0.0.7:80", "is not a valid IPv6 address"}};
  for (const auto& [text, says] : wrong_addresses) {
    CAPTURE(text);
    CHECK(contains(refusal({{"LOCKSTEP_DATA_ADDRESS", text}}), says));
  }
  using lockstep::PortRange;
  const auto ports = [&](const char* text) {
    return resolved("LOCKSTEP_DATA_PORTS", text).data_ports.value();
  };
  CHECK(ports("5000") == PortRange{5000, 5000});
  CHECK(ports("5000-5010") == PortRange{5000, 5010});
  CHECK(ports("5000-5010").size() == 11);
  CHECK(ports("1-65535").size() == 65535);
  CHECK_FALSE(resolve(tf_config(1, 3)).data_ports);
  CHECK_FALSE(resolve(tf_config(1, 3)).data_address);
  const std::pair<const char*, const char*> wrong_ports[] = {
      {"5010-5000", "LOCKSTEP_DATA_PORTS=\"5010-5000\" ends before it begins"},
      {"0", "has the port \"0\""},
      {"5000-", "has the port \"\""},
      {"-5000", "has the port \"\""},
      {"5000-70000", "out of range"},
      {"5000,5001", "which is not a number"},
      {"5000-5001-5002", "which is not a number"}};
  for (const auto& [text, says] : wrong_ports) {
    CAPTURE(text);
    CHECK(contains(refusal({{"LOCKSTEP_DATA_PORTS", text}}), says));
  }
}

TEST_CASE("LOCKSTEP_CONNECTIONS is a number from 1 to 16") {
  const auto count = [](const char* text) {
    return resolve(both(tf_config(1, 3), {{"LOCKSTEP_CONNECTIONS", text}})).connections;
  };
  CHECK(resolve(tf_config(1, 3)).connections == 1);
  CHECK((count("1") == 1 && count("16") == 16));
  for (const char* text : {"0", "17", "-1", "2x", "two"}) {
    CAPTURE(text);
    CHECK(contains(
        refusal({{"LOCKSTEP_CONNECTIONS", text}}),
        std::string("LOCKSTEP_CONNECTIONS=\"") + text + "\" is not valid; write a number"));
  }
}

TEST_CASE("LOCKSTEP_MIN_WORKERS makes a job elastic") {
  const auto elastic = [](lockstep::Elastic options, const Variables& variables) {
    return lockstep::detail::elastic_settings(options, cluster_test::environment(variables));
  };
  CHECK_FALSE(elastic({}, {}));
  const auto set =
      elastic({}, {{"LOCKSTEP_MIN_WORKERS", "2"}, {"LOCKSTEP_ELASTIC_DIRECTORY", "/votes"}});
  CHECK((set && set.min_workers == 2 && set.directory == "/votes"));
  const auto own = elastic({.min_workers = 3, .directory = "/own"},
                           {{"LOCKSTEP_MIN_WORKERS", "2"}, {"LOCKSTEP_ELASTIC_DIRECTORY", "/v"}});
  CHECK((own.min_workers == 3 && own.directory == "/own"));
  for (const char* text : {"0", "-1", "2x", "two"}) {
    CAPTURE(text);
    CHECK(contains(
        cluster_test::sentence([&] { elastic({}, {{"LOCKSTEP_MIN_WORKERS", text}}); }),
        std::string("LOCKSTEP_MIN_WORKERS=\"") + text + "\" is not valid; write the fewest"));
  }
}

TEST_CASE("LOCKSTEP_INTERFACE is the name of an interface or a network") {
  const auto interface = [](const char* text) {
    return resolve(both(tf_config(1, 3), {{"LOCKSTEP_INTERFACE", text}})).data_interface.value();
  };
  for (const char* text : {"eth1", "enp0s31f6", "br-12ab", "eth0:1", "eth0.100", "10.0.0.0/8",
                           "fd00::/8", "0.0.0.0/0", "::/0"})
    CHECK(interface(text) == text);
  CHECK(interface("FD00::0/008") == "fd00::/8");
  CHECK_FALSE(resolve(tf_config(1, 3)).data_interface);
  const auto several =
      resolve(both(tf_config(1, 3), {{"LOCKSTEP_INTERFACE", "eth1,10.0.0.0/8,x"}}));
  CHECK(several.data_interface == "eth1");
  CHECK(several.more_interfaces == std::vector<std::string>{"10.0.0.0/8", "x"});
  CHECK(several.connections == 3);
  CHECK(contains(refusal({{"LOCKSTEP_INTERFACE", "eth0,eth1"}, {"LOCKSTEP_CONNECTIONS", "1"}}),
                 "LOCKSTEP_CONNECTIONS=1 is less than the 2 interfaces of LOCKSTEP_INTERFACE"));
  const std::pair<const char*, const char*> wrong[] = {
      {"10.0.0.7", "LOCKSTEP_INTERFACE=\"10.0.0.7\" is an address; set LOCKSTEP_DATA_ADDRESS"},
      {"2001:db8:85a3::8a2e:370:7334", "is an address; set LOCKSTEP_DATA_ADDRESS"},
      {"10.0.0.0/33", "is not a network; write a number from 0 to 32 after the slash"},
      {"10.0.0.0/", "is not a network; write a number from 0 to 32 after the slash"},
      {"fd00::/129", "is not a network; write a number from 0 to 128 after the slash"},
      {"10.0.0/8", "is not a valid IPv4 address"},
      {"eth0/8", "is not a network; write one such as 10.0.0.0/8 or fd00::/8"},
      {"/8", "LOCKSTEP_INTERFACE=\"/8\""},
      {"eth0,", "LOCKSTEP_INTERFACE has an empty entry; write interfaces separated by commas"},
      {"eth0,eth1,eth0", "LOCKSTEP_INTERFACE=\"eth0,eth1,eth0\" has eth0 twice"},
      {"eth0,10.0.0.7", "LOCKSTEP_INTERFACE=\"10.0.0.7\" is an address"},
      {"eth 0", "is not an interface"},
      {"a_name_of_16_char", "is not an interface"}};
  for (const auto& [text, says] : wrong) {
    CAPTURE(text);
    CHECK(contains(refusal({{"LOCKSTEP_INTERFACE", text}}), says));
  }
  CHECK(contains(
      refusal({{"LOCKSTEP_INTERFACE", "eth0"}, {"LOCKSTEP_DATA_ADDRESS", "10.0.0.1"}}),
      "LOCKSTEP_DATA_ADDRESS=10.0.0.1 and LOCKSTEP_INTERFACE=eth0 both choose the address for data"));
}

TEST_CASE("LOCKSTEP_PORT_RANGE is another name of LOCKSTEP_DATA_PORTS") {
  const auto ports = [](const cluster_test::Variables& variables) {
    return resolve(both(tf_config(1, 3), variables)).data_ports.value();
  };
  CHECK(ports({{"LOCKSTEP_PORT_RANGE", "5000-5010"}}) == lockstep::PortRange{5000, 5010});
  CHECK(ports({{"LOCKSTEP_PORT_RANGE", "5000"}, {"LOCKSTEP_DATA_PORTS", "5000-5000"}}) ==
        lockstep::PortRange{5000, 5000});
  CHECK(contains(refusal({{"LOCKSTEP_PORT_RANGE", "5001"}, {"LOCKSTEP_DATA_PORTS", "5000"}}),
                 "LOCKSTEP_DATA_PORTS and LOCKSTEP_PORT_RANGE are two names of one setting"));
  CHECK(contains(refusal({{"LOCKSTEP_PORT_RANGE", "x"}}), "LOCKSTEP_PORT_RANGE=\"x\""));
}

TEST_CASE("LOCKSTEP_TRANSPORT is auto, tcp or shared_memory, and auto by default") {
  using lockstep::Transport;
  const auto transport = [](const char* text) {
    return resolve(both(tf_config(1, 3), {{"LOCKSTEP_TRANSPORT", text}})).transport;
  };
  CHECK(resolve(tf_config(1, 3)).transport == Transport::automatic);
  CHECK(transport("") == Transport::automatic);
  CHECK(transport("auto") == Transport::automatic);
  CHECK(transport("tcp") == Transport::tcp);
  CHECK(transport("shared_memory") == Transport::shared_memory);
  for (const char* text : {"Tcp", "shared", "mpi", " auto"})
    CHECK(refusal({{"LOCKSTEP_TRANSPORT", text}}) ==
          fmt::format("LOCKSTEP_TRANSPORT=\"{}\" is not a transport; write auto, tcp or "
                      "shared_memory",
                      text));
}

TEST_CASE("LOCKSTEP_WIRE is auto, sealed, plain or plain_on_trusted_network, and auto by default") {
  using lockstep::WireSecurity;
  const auto wire = [](const char* text) {
    return resolve(both(tf_config(1, 3), {{"LOCKSTEP_WIRE", text}})).wire;
  };
  CHECK(resolve(tf_config(1, 3)).wire == WireSecurity::automatic);
  CHECK(wire("auto") == WireSecurity::automatic);
  CHECK(wire("sealed") == WireSecurity::sealed);
  CHECK(wire("plain") == WireSecurity::plain);
  CHECK(wire("plain_on_trusted_network") == WireSecurity::plain_on_trusted_network);
  CHECK(contains(refusal({{"LOCKSTEP_WIRE", "none"}}), "LOCKSTEP_WIRE=\"none\" is not known"));
}

TEST_CASE("LOCKSTEP_RENDEZVOUS_TIMEOUT is in seconds and defaults to 60") {
  using std::chrono::milliseconds;
  const auto timeout = [](const char* text) {
    return resolve(both(tf_config(1, 3), {{"LOCKSTEP_RENDEZVOUS_TIMEOUT", text}}))
        .rendezvous_timeout;
  };
  CHECK(timeout("") == milliseconds(60'000));
  CHECK(timeout("5") == milliseconds(5'000));
  CHECK(timeout("0.25") == milliseconds(250));
  for (const char* text : {"0", "-1", "inf", "nan", "1s", "1e9", "ten", " 1"})
    CHECK(contains(refusal({{"LOCKSTEP_RENDEZVOUS_TIMEOUT", text}}),
                   "LOCKSTEP_RENDEZVOUS_TIMEOUT=\""));
}

TEST_CASE("the program's timeouts override the variables, and those the defaults") {
  using std::chrono::milliseconds;
  const auto set = both(tf_config(1, 3), {{"LOCKSTEP_SILENCE_TIMEOUT", "20"},
                                          {"LOCKSTEP_VERDICT_TIMEOUT", "0.5"},
                                          {"LOCKSTEP_MESH_TIMEOUT", "60"},
                                          {"LOCKSTEP_LEAVE_TIMEOUT", "0.001"}});
  lockstep::ClusterArguments arguments;
  arguments.timeouts.mesh = milliseconds(7000);
  CHECK(resolve(set, arguments).timeouts ==
        lockstep::ClusterTimeouts{milliseconds(20'000), milliseconds(500), milliseconds(7000),
                                  milliseconds(1)});
  CHECK(resolve(tf_config(1, 3)).timeouts == lockstep::ClusterTimeouts{});
  CHECK(lockstep::detail::complete_timeouts({}, 2) ==
        lockstep::ClusterTimeouts{milliseconds(2000), milliseconds(300), milliseconds(10'016),
                                  milliseconds(10'000)});
  CHECK(lockstep::detail::complete_timeouts({}, 128).mesh > milliseconds(60'000));
  for (const auto& [name, text, range] :
       {std::tuple{"LOCKSTEP_SILENCE_TIMEOUT", "0.9", "from 1 to 86400"},
        {"LOCKSTEP_SILENCE_TIMEOUT", "2s", "from 1 to 86400"},
        {"LOCKSTEP_VERDICT_TIMEOUT", "0", "from 0.01 to 86400"},
        {"LOCKSTEP_MESH_TIMEOUT", "-3", "from 0.1 to 86400"},
        {"LOCKSTEP_LEAVE_TIMEOUT", "86401", "from 0.001 to 86400"}}) {
    const std::string sentence = refusal({{name, text}});
    CAPTURE(sentence);
    CHECK(contains(sentence, std::string(name) + "=\""));
    CHECK(contains(sentence, std::string("write seconds ") + range));
  }
  for (const lockstep::ClusterTimeouts& wrong :
       {lockstep::ClusterTimeouts{.silence = milliseconds(999)},
        {.verdict = milliseconds(-1)},
        {.mesh = std::chrono::hours(25)},
        {.leave = milliseconds(-5)}})
    CHECK_THROWS_AS(lockstep::detail::complete_timeouts(wrong, 2), lockstep::UsageError);
}

TEST_CASE("the local rank is derived from the addresses on the same machine") {
  const std::string cluster = R"({"cluster":{"chief":["a:1"],"worker":["b:1","a:2","b:2","a:3"]},)";
  const auto job = resolve({{"TF_CONFIG", cluster + R"("task":{"type":"worker","index":1}})"}});
  CHECK(job.rank == 2);
  CHECK(job.local_rank == 1);
  CHECK(job.local_size == 3);
  CHECK(job.name(2) == "rank 2 (worker:1, a:2)");
  const auto loopback =
      resolve({{"TF_CONFIG", R"({"cluster":{"worker":["localhost:1","127.0.0.1:2"]},)"
                             R"("task":{"type":"worker","index":1}})"}});
  CHECK(loopback.local_rank == 1);
  CHECK(loopback.local_size == 2);
}

TEST_CASE("a cluster that mixes localhost and other machines gets a warning") {
  const auto job = resolve({{"TF_CONFIG", R"({"cluster":{"worker":["localhost:1","10.0.0.2:1"]},)"
                                          R"("task":{"type":"worker","index":1}})"}});
  REQUIRE(job.notes.size() == 2);
  CHECK(
      contains(job.notes[1], "worker:0 is at localhost:1, which every machine resolves to itself"));
}

TEST_CASE("the process environment is read unchanged") {
  const auto environment = lockstep::process_environment();
  CHECK(environment("PATH").has_value());
  CHECK_FALSE(environment("LOCKSTEP_THIS_IS_NOT_SET"));
}
