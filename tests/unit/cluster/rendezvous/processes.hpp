/// \file
/// A job of real processes, which can be killed, stopped and started again.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "unit/cluster/rendezvous/support.hpp"

namespace rendezvous_test {

/// The body of a process' loop, given the number of finished rounds.
using Work = void (*)(Rendezvous& job, std::uint64_t round);

inline void idle_work(Rendezvous& job, std::uint64_t round) {
  job.note_progress(round, Phase::forward);
  job.barrier("round", seconds(30));
  std::this_thread::sleep_for(milliseconds(2));
}

/// A job of processes. Must be created while the test has a single thread. Each process writes
/// "ready", then one line about its end: "lost RANK HOW" or "error WHAT".
class Processes {
 public:
  explicit Processes(std::size_t size, Work work = idle_work) : Processes(size, size, work) {
    for (std::size_t rank = 0; rank < size; ++rank) REQUIRE(line(rank, seconds(20)) == "ready");
  }
  /// Starts only the first `started` ranks, and does not wait for them.
  Processes(std::size_t size, std::size_t started, Work work = idle_work)
      : work_(work), members_(size) {
    ::alarm(120);  // no process outlives the test
    for (std::size_t rank = 0; rank < started; ++rank) start(rank);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (std::size_t rank = 0; rank < members_.size(); ++rank) kill(rank);
    ::alarm(0);
  }

  /// Starts the process of `rank`, which must not run.
  void start(std::size_t rank) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      // Children must not run the handlers of the test program.
      for (const int number : {SIGSEGV, SIGABRT, SIGTERM}) ::signal(number, SIG_DFL);
      run(rank, members_.size(), port_, ends[1], work_);
    }
    ::close(ends[1]);
    members_[rank] = {pid, ends[0]};
  }
  /// Ends the process of `rank`, if it runs.
  void kill(std::size_t rank) {
    Process& member = members_[rank];
    if (member.pid == 0) return;
    ::kill(member.pid, SIGKILL);
    ::waitpid(member.pid, nullptr, 0);
    ::close(member.pipe);
    member = {};
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
      if (left < milliseconds(0) || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0)
        return {};
      char chunk[512];
      const auto n = ::read(member.pipe, chunk, sizeof chunk);
      if (n <= 0) return {};
      member.text.append(chunk, static_cast<std::size_t>(n));
    }
  }

 private:
  struct Process {
    pid_t pid = 0;
    int pipe = -1;
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

  Work work_;
  std::uint16_t port_ = free_port();
  std::vector<Process> members_;
};

}  // namespace rendezvous_test
