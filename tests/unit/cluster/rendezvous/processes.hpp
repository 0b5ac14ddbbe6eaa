/// \file
/// Real processes, which can be killed, stopped and started again.
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
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "unit/cluster/rendezvous/support.hpp"

namespace rendezvous_test {

/// Processes that write lines to the test. Must be created while the test has a single thread.
class LineProcesses {
 public:
  using Write = std::function<void(std::string)>;
  using Program = std::function<void(std::size_t index, const Write& write)>;

  /// A process runs `program`. The exception that leaves it is the last line: "error WHAT".
  LineProcesses(std::size_t size, Program program) : program_(std::move(program)), members_(size) {
    ::alarm(120);  // no process outlives the test
  }
  LineProcesses(const LineProcesses&) = delete;
  LineProcesses& operator=(const LineProcesses&) = delete;
  ~LineProcesses() {
    kill_all();
    ::alarm(0);
  }

  /// Starts a process, which must not run.
  void start(std::size_t index) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      // Children must not run the handlers of the test program.
      for (const int number : {SIGSEGV, SIGABRT, SIGTERM}) ::signal(number, SIG_DFL);
      run(index, ends[1]);
    }
    ::close(ends[1]);
    members_[index] = {pid, ends[0]};
  }
  /// Ends a process, if it runs.
  void kill(std::size_t index) {
    Process& member = members_[index];
    if (member.pid == 0) return;
    ::kill(member.pid, SIGKILL);
    ::waitpid(member.pid, nullptr, 0);
    ::close(member.pipe);
    member = {};
  }
  void kill_all() {
    for (std::size_t index = 0; index < members_.size(); ++index) kill(index);
  }
  void signal(std::size_t index, int number) { ::kill(members_[index].pid, number); }

  /// The next line of a process; empty if none arrives in time.
  std::string line(std::size_t index, milliseconds limit) {
    Process& member = members_[index];
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

  [[noreturn]] void run(std::size_t index, int out) const {
    const auto write = [out](std::string line) {
      line += '\n';
      (void)!::write(out, line.data(), line.size());
    };
    try {
      program_(index, write);
    } catch (const std::exception& error) {
      write(std::string("error ") + error.what());
    }
    ::_exit(3);
  }

  Program program_;
  std::vector<Process> members_;
};

/// The body of a process' loop, given the number of finished rounds.
using Work = void (*)(Rendezvous& job, std::uint64_t round);

inline void idle_work(Rendezvous& job, std::uint64_t round) {
  job.note_progress(round, Phase::forward);
  job.barrier("round", seconds(30));
  std::this_thread::sleep_for(milliseconds(2));
}

/// The processes of a job. Each writes "ready", then one line about its end: "lost RANK HOW" or
/// "error WHAT".
class Processes : public LineProcesses {
 public:
  explicit Processes(std::size_t size, Work work = idle_work) : Processes(size, size, work) {
    for (std::size_t rank = 0; rank < size; ++rank) REQUIRE(line(rank, seconds(20)) == "ready");
  }
  /// Starts only the first `started` ranks, and does not wait for them.
  Processes(std::size_t size, std::size_t started, Work work = idle_work)
      : LineProcesses(size, [size, port = free_port(), work](std::size_t rank, const Write& write) {
          Lines lines;
          Rendezvous job(options(rank, size, port, lines));
          write("ready");
          try {
            for (std::uint64_t round = 0;; ++round) work(job, round);
          } catch (const PeerLost& loss) {
            write(fmt::format("lost {} {}", loss.rank(), loss.how()));
          }
        }) {
    for (std::size_t rank = 0; rank < started; ++rank) start(rank);
  }
};

}  // namespace rendezvous_test
