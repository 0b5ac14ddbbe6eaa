// Elastic jobs of real processes, which are killed, stopped and started again.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "unit/cluster/elastic/support.hpp"
#include "unit/cluster/rendezvous/processes.hpp"

using namespace elastic_test;

namespace {

/// The program of a process: rounds of a gather, in which the members also agree on newcomers.
/// Writes "generation NUMBER SIZE RANK" for each one that it forms, and "error WHAT" at its end.
void train(ElasticMember& member, const std::function<void(const std::string&)>& write) {
  std::string why;
  for (Generation now = member.join();; now = member.next(why)) {
    bool formed = false;
    try {
      lockstep::Rendezvous job({.cluster = now.cluster, .secret = {}, .signature = {}});
      job.barrier("formed", seconds(20));
      formed = true;
      write(fmt::format("generation {} {} {}", now.number, now.cluster.world_size,
                        *now.cluster.rank));
      for (why = "a newcomer waits";;) {
        const std::string flags =
            job.gather("round", {}, member.has_newcomers() ? "1" : "0", seconds(30));
        if (flags.find('1') != std::string::npos || member.must_reform()) break;
        std::this_thread::sleep_for(milliseconds(2));
      }
    } catch (const lockstep::Error& error) {
      why = error.what();
    }
    if (formed) continue;
    if (now.number > 0 && now.is_new[*now.cluster.rank]) throw lockstep::Error(why);
    member.reject_newcomers();
  }
}

/// Must be created while the test has a single thread.
class ElasticProcesses : public rendezvous_test::LineProcesses {
 public:
  explicit ElasticProcesses(std::size_t size)
      : LineProcesses(size,
                      [this](std::size_t index, const Write& write) {
                        lockstep::set_log({});
                        train(job_.start(index), write);
                      }),
        job_(size) {
    job_.patience = milliseconds(20'000);
    // A process of a loaded machine must not count as silent.
    job_.describe = [](lockstep::ResolvedCluster& cluster) {
      cluster.timeouts.silence = milliseconds(5000);
    };
    for (std::size_t i = 0; i < size; ++i) start(i);
  }

  ElasticProcesses(const ElasticProcesses&) = delete;
  ElasticProcesses& operator=(const ElasticProcesses&) = delete;
  ~ElasticProcesses() { kill_all(); }  // before their folders are removed

  /// The next line of a process; empty if none arrives in 30 s.
  std::string line(std::size_t index) { return LineProcesses::line(index, seconds(30)); }
  /// Waits until these have formed a generation of this many workers, whatever its number.
  bool trains(const std::vector<std::size_t>& indices, std::size_t workers) {
    for (const std::size_t index : indices)
      for (std::size_t size = 0; size != workers;) {
        const std::string text = line(index);
        if (std::sscanf(text.c_str(), "generation %*u %zu", &size) == 1) continue;
        UNSCOPED_INFO("process " << index << ": '" << text << "'");
        return false;
      }
    return true;
  }

 private:
  Job job_;
};

}  // namespace

TEST_CASE("an elastic job of processes goes on when some are killed, and takes them back") {
  ElasticProcesses job(4);
  REQUIRE(job.trains({0, 1, 2, 3}, 4));

  job.kill(2);
  REQUIRE(job.trains({0, 1, 3}, 3));

  job.kill(0);  // two at once, also the chief
  job.kill(3);
  REQUIRE(job.trains({1}, 1));

  for (const std::size_t index : {0u, 2u, 3u}) job.start(index);
  REQUIRE(job.trains({0, 1, 2, 3}, 4));

  job.kill(1);  // the chief, and another one while the rest recovers
  std::this_thread::sleep_for(milliseconds(15));
  job.kill(3);
  REQUIRE(job.trains({0, 2}, 2));

  job.signal(0, SIGSTOP);
  REQUIRE(job.trains({2}, 1));
  job.signal(0, SIGCONT);
  std::string end = job.line(0);
  while (end.starts_with("generation")) end = job.line(0);  // from before it was stopped
  INFO(end);
  CHECK(end.find("gone on without this process") != std::string::npos);
}

TEST_CASE("an elastic job of processes survives random kills", "[.slow]") {
  ElasticProcesses job(4);
  std::mt19937 random(7);
  std::vector<std::size_t> all{0, 1, 2, 3};
  REQUIRE(job.trains(all, 4));
  milliseconds longest{0};
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const std::size_t first = random() % 4, second = random() % 4;
    const auto began = Clock::now();
    job.kill(first);
    if (round % 3 == 0) std::this_thread::sleep_for(milliseconds(random() % 60));
    if (round % 2 == 0 && round % 8 != 0) job.kill(second);
    std::vector<std::size_t> lost{first}, left;
    if (round % 2 == 0 && round % 8 != 0 && second != first) lost.push_back(second);
    for (const std::size_t index : all)
      if (std::find(lost.begin(), lost.end(), index) == lost.end()) left.push_back(index);
    REQUIRE(job.trains(left, left.size()));
    longest = std::max(longest, std::chrono::duration_cast<milliseconds>(Clock::now() - began));
    for (const std::size_t index : lost) job.start(index);
    REQUIRE(job.trains(all, 4));
  }
  WARN("the longest recovery took " << longest.count() << " ms");
  CHECK(longest < seconds(5));
}
