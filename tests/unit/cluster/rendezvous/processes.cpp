/// \file
/// Real processes that are killed, stopped, or end in other ways. Prints the time from the end of a
/// process to the reports of the survivors. The asserted limits are three times the guaranteed
/// ones.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;

namespace {

/// The body of a process' loop, given the number of finished rounds.
using Work = void (*)(Rendezvous& job, std::uint64_t round);

void idle_work(Rendezvous& job, std::uint64_t round) {
  job.note_progress(round, Phase::forward);
  job.barrier("round", 30s);
  std::this_thread::sleep_for(2ms);
}

/// A job of processes. Must be created while the test has a single thread. Each process writes
/// "ready", then one line about its end: "lost RANK HOW" or "error WHAT".
class Processes {
 public:
  explicit Processes(std::size_t size, Work work = idle_work) {
    ::alarm(120);  // no process outlives the test
    const auto port = free_port();
    for (std::size_t rank = 0; rank < size; ++rank) {
      int ends[2];
      REQUIRE(::pipe(ends) == 0);
      std::fflush(nullptr);
      const pid_t pid = ::fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        // Children must not run the handlers of the test program.
        for (const int number : {SIGSEGV, SIGABRT, SIGTERM}) ::signal(number, SIG_DFL);
        run(rank, size, port, ends[1], work);
      }
      ::close(ends[1]);
      members_.push_back({pid, ends[0]});
    }
    for (std::size_t rank = 0; rank < size; ++rank) REQUIRE(line(rank, 20s) == "ready");
  }
  ~Processes() {
    for (Process& member : members_) {
      ::kill(member.pid, SIGKILL);
      ::waitpid(member.pid, nullptr, 0);
      ::close(member.pipe);
    }
    ::alarm(0);
  }

  void signal(std::size_t rank, int number) { ::kill(members_[rank].pid, number); }

  /// The next line of `rank`; empty if none arrives in time.
  std::string line(std::size_t rank, milliseconds limit) {
    Process& member = members_[rank];
    const auto end = Clock::now() + limit;
    for (;;) {
      const auto newline = member.text.find('\n');
      if (newline != std::string::npos) {
        std::string result = member.text.substr(0, newline);
        member.text.erase(0, newline + 1);
        return result;
      }
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
      pollfd ready{member.pipe, POLLIN, 0};
      if (left < 0ms || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return {};
      char chunk[512];
      const auto n = ::read(member.pipe, chunk, sizeof chunk);
      if (n <= 0) return {};
      member.text.append(chunk, static_cast<std::size_t>(n));
    }
  }

 private:
  struct Process {
    pid_t pid;
    int pipe;
    std::string text{};
  };

  [[noreturn]] static void run(std::size_t rank, std::size_t size, std::uint16_t port, int out,
                               Work work) {
    const auto write_line = [out](std::string line) {
      line += '\n';
      (void)!::write(out, line.data(), line.size());
    };
    try {
      Lines lines;
      Rendezvous job(options(rank, size, port, lines));
      write_line("ready");
      try {
        for (std::uint64_t round = 0;; ++round) work(job, round);
      } catch (const PeerLost& loss) {
        write_line(fmt::format("lost {} {}", loss.rank(), loss.how()));
      }
    } catch (const std::exception& error) {
      write_line(std::string("error ") + error.what());
    }
    ::_exit(3);
  }

  std::vector<Process> members_;
};

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
