/// \file
/// Real processes that are killed, stopped, or end in other ways. Prints the time from the end of a
/// process to the reports of the survivors. The asserted limits are three times the guaranteed
/// ones.
#include "unit/cluster/rendezvous/processes.hpp"

#include <algorithm>

using namespace rendezvous_test;
using namespace std::chrono_literals;

namespace {

void print(const char* what, std::vector<milliseconds> times) {
  std::sort(times.begin(), times.end());
  std::printf("%s: %zu reports, median %lld ms, 99 %% %lld ms, most %lld ms\n", what, times.size(),
              static_cast<long long>(times[times.size() / 2].count()),
              static_cast<long long>(times[times.size() * 99 / 100].count()),
              static_cast<long long>(times.back().count()));
}

}  // namespace

TEST_CASE("any killed process is named by every survivor") {
  std::vector<milliseconds> times;
  for (int kill = 0; kill < 20; ++kill) {
    const auto victim = static_cast<std::size_t>(kill % 4);
    CAPTURE(victim);
    Processes job(4);
    std::this_thread::sleep_for(milliseconds(10 + 7 * kill));
    const auto began = Clock::now();
    const int signals[] = {SIGKILL, SIGSEGV, SIGTERM, SIGABRT};
    job.signal(victim, signals[kill / 4 % 4]);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string line = job.line(rank, 3s);
      times.push_back(std::chrono::duration_cast<milliseconds>(Clock::now() - began));
      CHECK(line.find(fmt::format("lost {} closed its connection", victim)) == 0);
    }
  }
  print("killed", times);
}

TEST_CASE("a chief that is killed while the job forms is named by all workers that had joined") {
  std::vector<milliseconds> times;
  for (int kill = 0; kill < 5; ++kill) {
    Processes job(4, 3);  // rank 3 is missing
    std::this_thread::sleep_for(700ms + kill * 70ms);
    const auto began = Clock::now();
    job.kill(0);
    for (const std::size_t rank : {1u, 2u}) {
      const std::string line = job.line(rank, 3s);
      times.push_back(std::chrono::duration_cast<milliseconds>(Clock::now() - began));
      CAPTURE(line);
      CHECK(line.find("error rank 0 (127.0.0.1:") == 0);
      CHECK(line.find(") closed its connection") != std::string::npos);  // sometimes with a reset
      CHECK(line.find("before the job started, and nothing listens at its address any more") !=
            std::string::npos);
    }
  }
  print("chief killed at the join", times);
}

TEST_CASE("a chief that is killed while the job forms and restarts at once finds its workers") {
  Processes job(4, 3);
  for (int restart = 0; restart < 3; ++restart) {
    std::this_thread::sleep_for(700ms);
    job.kill(0);
    std::this_thread::sleep_for(300ms);  // its workers are refused meanwhile
    job.start(0);
  }
  job.start(3);
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(job.line(rank, 20s) == "ready");
}

TEST_CASE("a process stopped for a second continues, but one stopped for longer is named") {
  std::vector<milliseconds> times;
  int late = 0;
  for (std::size_t victim = 0; victim < 4; ++victim) {
    CAPTURE(victim);
    Processes job(4);
    const auto stopped = Clock::now();
    job.signal(victim, SIGSTOP);
    std::this_thread::sleep_for(1s);
    job.signal(victim, SIGCONT);
    if (Clock::now() - stopped > 1300ms) {  // this test itself woke up late
      if (++late == 5) SKIP("the machine is too busy to continue a process after a second");
      --victim;
      continue;
    }
    std::this_thread::sleep_for(700ms);
    const auto began = Clock::now();
    job.signal(victim, SIGSTOP);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string line = job.line(rank, 9s);
      times.push_back(std::chrono::duration_cast<milliseconds>(Clock::now() - began));
      CHECK(line == fmt::format("lost {} was silent for 2 s", victim));
    }
    job.signal(victim, SIGCONT);
    CHECK(job.line(victim, 5s).find(fmt::format("lost {} ", victim)) == 0);
  }
  print("stopped", times);
}

TEST_CASE("when all processes are stopped for a while and continue, none is blamed") {
  Processes job(3);
  for (std::size_t rank = 0; rank < 3; ++rank) job.signal(rank, SIGSTOP);
  std::this_thread::sleep_for(4s);
  for (std::size_t rank = 0; rank < 3; ++rank) job.signal(rank, SIGCONT);
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(job.line(rank, 1s).empty());
}

TEST_CASE("a process that exits or throws is named with its failure") {
  Processes quits(3, [](Rendezvous& job, std::uint64_t round) {
    if (job.rank() == 1 && round == 5) std::_Exit(0);
    idle_work(job, round);
  });
  for (const std::size_t rank : {0u, 2u})
    CHECK(quits.line(rank, 3s).find("lost 1 closed its connection") == 0);

  Processes fails(3, [](Rendezvous& job, std::uint64_t round) {
    if (job.rank() == 2 && round == 5) job.fail("the callback threw: out of paper");
    idle_work(job, round);
  });
  for (const std::size_t rank : {0u, 1u})
    CHECK(fails.line(rank, 3s) == "lost 2 failed: the callback threw: out of paper");
}

TEST_CASE("a child process does not inherit the connections of a member") {
  Processes job(2, [](Rendezvous& member, std::uint64_t round) {
    // The child outlives its parent; the connection must not.
    if (member.rank() == 1 && round == 5 && ::fork() == 0) {
      for (int file = 0; file < 3; ++file) ::close(file);
      ::execl("/bin/sleep", "sleep", "8", static_cast<char*>(nullptr));
    }
    idle_work(member, round);
  });
  std::this_thread::sleep_for(300ms);
  job.signal(1, SIGKILL);
  CHECK(job.line(0, 3s).find("lost 1 closed its connection") == 0);
}
