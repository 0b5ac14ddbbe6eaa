/// How the workers of one machine exchange: over shared memory, or over TCP if they cannot.
#include <sched.h>

#include <fmt/format.h>
#include <catch2/catch_template_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/faults.hpp"
#include "distributed/places.hpp"
#include "lockstep/cpu.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;

namespace {

constexpr std::string_view memory_name = "memfd:lockstep-exchange";

/// The mappings of the exchange's memory in this process.
std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find(memory_name) != std::string::npos;
  return count;
}

/// The descriptors of the exchange's memory in this process.
std::size_t descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    count += target.find(memory_name) != std::string::npos;
  }
  return count;
}

/// Trains, and gives the mappings and data connections during training, those after it, and the
/// digest of the weights.
void train(Here& own, const char* transport, std::size_t shards = 0) {
  ::setenv("LOCKSTEP_TRANSPORT", transport, 1);
  here = &own;
  std::vector<double> found;
  std::string digest;
  {
    ls::Model model{replicas::Noisy{},
                    ls::MultiWorkerMirrored<ls::Reference<float>>{.virtual_shards = shards},
                    replicas::crossentropy, ls::Adam{.learning_rate = 0.01}};
    model.fit(line::classes(48) | ls::batch(16), line::quiet(2));
    found = {static_cast<double>(mappings()), static_cast<double>(descriptors()),
             static_cast<double>(data_connections().size())};
    digest = model.weights_sha256();
  }
  found.push_back(static_cast<double>(mappings()));
  found.insert(found.end(), digest.begin(), digest.end());
  own.give(found);
}

/// A megabyte of gradients.
struct Wide : ls::Sequential<ls::Input<2>, ls::Dense<512>, ls::ReLU, ls::Dense<512>, ls::ReLU,
                             ls::Dense<3>> {
  static constexpr double kilobytes = (1536 + 262'656 + 1539) * 4 / 1024.0;
};

/// Kilobytes of the exchange's heap, its largest mapping, that this process has accessed.
double heap_kilobytes() {
  std::ifstream maps("/proc/self/smaps");
  double size = 0, most = 0, resident = 0;
  bool is_ours = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string key;
    double value = 0;
    words >> key;
    if (key.find('-') != std::string::npos && key.find(':') == std::string::npos)
      is_ours = line.find(memory_name) != std::string::npos;
    if (!is_ours || !(words >> value)) continue;
    if (key == "Size:") size = value;
    if (key == "Rss:" && size > most) {
      most = size;
      resident = value;
    }
  }
  return resident;
}

/// Trains Wide, and gives the kilobytes of the heap that this process has accessed, three
/// placeholders, and the digest of the weights.
template <class D>
void train_wide(Here& own, const char* transport, std::size_t replicas, std::size_t shards) {
  ::setenv("LOCKSTEP_TRANSPORT", transport, 1);
  here = &own;
  D device;
  if constexpr (requires { device.threads; }) device.threads = 1;
  ls::Model model{
      Wide{},
      ls::MultiWorkerMirrored<D>{.replicas = replicas, .on = device, .virtual_shards = shards},
      replicas::crossentropy, ls::Adam{.learning_rate = 0.01}};
  model.fit(line::classes(48) | ls::batch(16), line::quiet(1));
  std::vector<double> found{heap_kilobytes(), 0, 0, 0};
  const std::string digest = model.weights_sha256();
  found.insert(found.end(), digest.begin(), digest.end());
  own.give(found);
}

void all_succeed(Processes& job) {
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    CAPTURE(rank, job.report(rank).what.text);
    REQUIRE(job.report(rank).outcome == Outcome::done);
    CHECK(job.numbers(rank).size() > 4);
  }
}

/// A log has line breaks in sentences.
std::string one_line(const std::string& log) {
  std::istringstream words(log);
  std::string line;
  for (std::string word; words >> word;) line += word + " ";
  return line;
}

std::vector<double> digest_of(Processes& job, std::size_t rank) {
  const auto all = job.numbers(rank);
  return {all.begin() + 4, all.end()};
}

/// No file of this process may grow beyond a megabyte, so that it cannot create the memory.
void limit_files() {
  const rlimit limit{1 << 20, 1 << 20};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

/// Runs work() in a child that is process 1 of its own PID namespace, as in a container. \return
/// whether that was possible.
template <class Work>
bool in_pid_namespace(const Work& work) {
  if (::unshare(CLONE_NEWPID) != 0) return false;
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    std::fflush(nullptr);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  return true;
}

/// The chief must have logged `reason`, and all of three workers have used TCP and agree.
void all_use_tcp(Processes& job, const std::string& reason) {
  CHECK(one_line(job.logs()).find("the workers exchange over TCP: " + reason) != std::string::npos);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(job.numbers(rank)[0] == 0);
    CHECK(job.numbers(rank)[2] == 4);
    CHECK(digest_of(job, rank) == digest_of(job, 0));
  }
}

}  // namespace

TEST_CASE("workers of one machine share memory without connections, and train as over TCP") {
  for (const auto& [workers, shards] : {std::pair{2u, 0u}, {3u, 0u}, {4u, 8u}}) {
    CAPTURE(workers, shards);
    std::vector<double> digest;
    for (const char* transport : {"tcp", "shared_memory", "auto"}) {
      CAPTURE(transport);
      Processes job(workers, [&, shards = shards](Here& own) { train(own, transport, shards); });
      all_succeed(job);
      const bool is_shared = transport != std::string_view("tcp");
      for (std::size_t rank = 0; rank < workers; ++rank) {
        const auto found = job.numbers(rank);
        CHECK(found[0] == (is_shared ? 2 : 0));  // slots, and the heap
        CHECK(found[1] == 0);
        CHECK(found[2] == (is_shared ? 0 : 2.0 * (workers - 1)));
        CHECK(found[3] == 0);
        if (digest.empty()) digest = digest_of(job, rank);
        CHECK(digest_of(job, rank) == digest);
      }
      CHECK(job.has_no_orphans());
    }
  }
}

TEST_CASE("workers of several machines share memory within each, and train as over TCP") {
  struct {
    std::size_t workers, machines, shards;
    bool is_flat;
  } const cases[] = {{4, 2, 0, false}, {4, 2, 8, false}, {5, 2, 0, false}, {4, 3, 4, true}};
  for (const auto& [workers, machines, shards, is_flat] : cases) {
    CAPTURE(workers, machines, shards);
    std::vector<double> digest;
    for (const char* transport : {"tcp", "auto"}) {
      CAPTURE(transport);
      Processes job(
          workers, [&, shards = shards](Here& own) { train(own, transport, shards); }, 60s,
          machines);
      all_succeed(job);
      const bool is_shared = !is_flat && transport != std::string_view("tcp");
      for (std::size_t rank = 0; rank < workers; ++rank) {
        const auto found = job.numbers(rank);
        CAPTURE(rank, job.logs());
        // With five workers machine 0 has three, of which one sends nothing.
        const bool has_lane = workers != 5 || rank != 2;
        CHECK(found[0] == (is_shared ? 2 : 0));
        CHECK(found[1] == 0);
        CHECK(found[2] == 2.0 * static_cast<double>(!is_shared ? workers - 1
                                                    : has_lane ? machines - 1
                                                               : 0));
        CHECK(found[3] == 0);
        if (digest.empty()) digest = digest_of(job, rank);
        CHECK(digest_of(job, rank) == digest);
      }
      CHECK(job.has_no_orphans());
      if (is_flat && transport == std::string_view("auto"))
        CHECK(one_line(job.logs())
                  .find("the workers of a machine exchange over TCP, as machines "
                        "do: virtual shards") != std::string::npos);
    }
  }
}

TEST_CASE("several connections between two workers share the data") {
  std::vector<double> digest;
  for (const char* connections : {"1", "3"}) {
    Processes job(3, [&](Here& own) {
      ::setenv("LOCKSTEP_CONNECTIONS", connections, 1);
      train(own, "tcp");
    });
    all_succeed(job);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CHECK(job.numbers(rank)[2] == 4 * std::stod(connections));  // two peers, two groups
      if (digest.empty()) digest = digest_of(job, rank);
      CHECK(digest_of(job, rank) == digest);
    }
  }
}

TEST_CASE("if one machine has no memory to share, all machines exchange over TCP") {
  Processes job(
      4,
      [](Here& own) {
        if (own.rank == 2) limit_files();
        train(own, "auto");
      },
      60s, 2);
  all_succeed(job);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(job.numbers(rank)[0] == 0);
    CHECK(job.numbers(rank)[2] == 6);
    CHECK(digest_of(job, rank) == digest_of(job, 0));
  }
  CHECK(one_line(job.logs())
            .find("the workers of a machine exchange over TCP, as machines do: "
                  "rank 2: shared memory: it needs ") != std::string::npos);
}

TEST_CASE("sealed or plain: workers train alike over TCP") {
  for (const std::size_t workers : {2u, 3u}) {
    CAPTURE(workers);
    std::vector<double> digest;
    for (const char* wire : {"sealed", "plain", "plain_on_trusted_network"}) {
      CAPTURE(wire);
      Processes job(workers, [&](Here& own) {
        ::setenv("LOCKSTEP_WIRE", wire, 1);
        train(own, "tcp");
      });
      all_succeed(job);
      for (std::size_t rank = 0; rank < workers; ++rank) {
        if (digest.empty()) digest = digest_of(job, rank);
        CHECK(digest_of(job, rank) == digest);
      }
    }
  }
}

TEMPLATE_TEST_CASE("workers sum gradients where they lie, in memory of all, with the bits of TCP",
                   "", ls::Reference<float>, ls::Cpu) {
  struct {
    std::size_t workers, replicas, shards, buffers;
  } const cases[] = {{2, 1, 0, 1}, {3, 1, 0, 1}, {2, 2, 0, 1}, {2, 1, 4, 2}};
  for (const auto& [workers, replicas, shards, buffers] : cases) {
    CAPTURE(workers, replicas, shards);
    std::vector<double> digest;
    for (const char* transport : {"tcp", "shared_memory"}) {
      CAPTURE(transport);
      Processes job(workers, [&, replicas = replicas, shards = shards](Here& own) {
        train_wide<TestType>(own, transport, replicas, shards);
      });
      all_succeed(job);
      // Its own gradients, and its part of those of each other process.
      const auto n = static_cast<double>(workers);
      const double own = Wide::kilobytes * static_cast<double>(buffers), others = own * (n - 1) / n;
      for (std::size_t rank = 0; rank < workers; ++rank) {
        if (transport != std::string_view("tcp")) {
          CHECK(job.numbers(rank)[0] > own + 0.8 * others);
          // Also sums, and pages that the kernel maps along.
          CHECK(job.numbers(rank)[0] < own + others + 500);
        }
        if (digest.empty()) digest = digest_of(job, rank);
        CHECK(digest_of(job, rank) == digest);
      }
    }
  }
}

TEST_CASE("if rank 0 cannot create the memory, all workers exchange over TCP and log why") {
  Processes job(3, [](Here& own) {
    if (own.rank == 0) limit_files();
    train(own, "auto");
  });
  all_succeed(job);
  all_use_tcp(job, "rank 0: shared memory: it needs ");
}

TEST_CASE("if a worker cannot open the memory, all workers exchange over TCP and log why") {
  Processes job(3, [](Here& own) {
    const auto work = [&] { own.run_and_report([&] { train(own, "auto"); }); };
    // The other workers look for its process in their own namespace.
    if (own.rank > 0 || !in_pid_namespace(work)) work();
  });
  all_succeed(job);
  if (job.numbers(0)[0] == 1) SKIP("needs the right to create a PID namespace");
  all_use_tcp(job, "rank 1: shared memory: ");
}

TEST_CASE("a job that insists on shared memory is refused on all ranks if it cannot be had") {
  Processes job(3, [](Here& own) {
    if (own.rank == 0) limit_files();
    train(own, "shared_memory");
  });
  REQUIRE(job.all_end());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::string what = job.report(rank).what;
    CAPTURE(rank, what);
    CHECK(job.report(rank).outcome == Outcome::error);
    CHECK(
        what.starts_with("LOCKSTEP_TRANSPORT=shared_memory: the workers cannot exchange over "
                         "shared memory: rank 0: shared memory: it needs "));
    CHECK(what == std::string(job.report(0).what));
  }
  CHECK(job.has_no_orphans());
}

TEST_CASE("workers with different transports refuse each other with one message") {
  Processes job(3, [](Here& own) { train(own, own.rank == 2 ? "tcp" : "auto"); });
  REQUIRE(job.all_end());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::string what = job.report(rank).what;
    CAPTURE(rank, what);
    CHECK(job.report(rank).outcome == Outcome::error);
    CHECK(what.find("\"transport\"") != std::string::npos);
    CHECK(what.find("\"tcp\"") != std::string::npos);
    CHECK(what.find("\"auto\"") != std::string::npos);
  }
}

TEST_CASE("a worker that dies before it opens the memory is named at once") {
  Processes job(3, [](Here& own) {
    if (own.rank != 2) return own.run_and_report([&] { train(own, "auto"); });
    const auto environment = ls::process_environment();
    const auto cluster = ls::resolve_cluster(environment);
    ls::Rendezvous rendezvous(
        {.cluster = cluster, .secret = ls::read_secret(environment, cluster)});
    rendezvous.agree("strategy",
                     {{"transport", "auto"},
                      {"wire", "auto"},
                      {"connections", "1"},
                      {"interfaces", "1"},
                      {"virtual shards", "0"},
                      {"stragglers", "off"}},
                     10s);
    send_place(rendezvous);
    rendezvous.get("memory/0", 10s);
    std::this_thread::sleep_for(300ms);  // rank 1 has opened it and waits
    own.begin_fault();
    ::kill(::getpid(), SIGKILL);
  });
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  for (const std::size_t rank : {0u, 1u}) {
    CAPTURE(rank, job.report(rank).what.text);
    CHECK(job.report(rank).outcome == Outcome::peer_lost);
    CHECK(job.report(rank).lost_rank == 2);
    CHECK(job.report(rank).reported_at - job.report(2).fault_at < 3s);  // guaranteed: 1 s
  }
}

TEST_CASE("a model that is opened again a hundred times leaves no descriptor and no mapping") {
  Processes job(2, [](Here& own) {
    const auto entries = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    };
    const auto keeps_open = [] { return ls::MultiWorkerMirrored<ls::Reference<float>>{}.open(); };
    const auto kept = keeps_open();  // the job goes on
    keeps_open();
    const auto before = entries();
    for (int i = 0; i < 100; ++i) keeps_open();
    own.give({static_cast<double>(entries() - before), static_cast<double>(mappings())});
  });
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CAPTURE(rank, job.report(rank).what.text);
    CHECK(job.numbers(rank) == std::vector<double>{0, 2});
  }
}

TEST_CASE("too few open files for the data connections are reported with the number to set") {
  Processes job(3, [](Here& own) {
    if (own.rank == 1) {
      const auto files = std::filesystem::directory_iterator("/proc/self/fd");
      const auto open = static_cast<rlim_t>(std::distance(begin(files), end(files))) - 1;
      // Enough for the connection to the chief and the reserve, so that this worker joins.
      const rlimit limit{open + 1 + 16, open + 1 + 16};
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    train(own, "tcp");
  });
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  const std::string what(job.report(1).what);
  CAPTURE(what);
  CHECK(what.find("the data connections to 2 workers need 4 files in addition to ") == 0);
  CHECK(what.find("; raise the limit to at least ") != std::string::npos);
  for (const std::size_t other : {0u, 2u}) {
    CHECK(job.report(other).outcome == Outcome::peer_lost);
    CHECK(job.report(other).lost_rank == 1);
    CHECK(std::string(job.report(other).what).find(what) != std::string::npos);
  }
}
