// run_main: exit codes and signals in this process, output in a child process.
#include "lockstep/training/run_main.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <new>
#include <thread>

#include "lockstep/files/atomic_file.hpp"
#include "support/folder.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {
struct Ended {
  int code;
  std::string stderr_text;
};
/// Runs a child process whose main function is `run_main(body)`.
template <class Body>
Ended program(Body body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    std::signal(SIGINT, SIG_DFL);  // replaces Catch2's handlers
    std::signal(SIGTERM, SIG_DFL);
    ::alarm(20);
    ::dup2(ends[1], STDERR_FILENO);
    ::_exit(ls::run_main(body));
  }
  ::close(ends[1]);
  Ended ended{};
  char part[256];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;)
    ended.stderr_text.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  ended.code = WEXITSTATUS(status);
  return ended;
}
/// Exit code and output of a program whose body throws `error`.
template <class Error>
void throwing(const Error& error, int code, const std::string& sentence) {
  const Ended ended = program([&] { throw error; });
  CHECK(ended.code == code);
  CHECK(ended.stderr_text == std::string(program_invocation_short_name) + ": " + sentence + "\n");
}
void until_stopped(const std::stop_token& stop) {
  while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
}  // namespace

TEST_CASE("run_main returns the body's exit code") {
  CHECK(ls::run_main([] {}) == 0);
  CHECK(ls::run_main([] { return 7; }) == 7);
  CHECK(ls::run_main([](std::stop_token) {}) == 0);
  CHECK(ls::run_main([](const std::stop_token& stop) { return stop.stop_possible() ? 8 : 9; }) ==
        8);
  const Ended ended = program([] {});
  CHECK(ended.code == 0);
  CHECK(ended.stderr_text.empty());
}

TEST_CASE("run_main turns each exception into one line and an exit code") {
  throwing(ls::Error("the disk is full"), 1, "the disk is full");
  throwing(ls::DataError("a.csv", "line 2 has no number"), 1, "a.csv: line 2 has no number");
  throwing(std::out_of_range("none"), 1, "none");
  throwing(std::bad_alloc(), 1, "out of memory; use a smaller batch or a smaller model");
  throwing(7, 1, "failed with an unknown exception; throw one that derives from std::exception");
  throwing(ls::UsageError("fit: epochs is 0"), 2, "fit: epochs is 0");
  throwing(ls::ClusterError("TF_CONFIG is empty"), 2, "TF_CONFIG is empty");
  throwing(ls::PeerLost(2, "10.0.0.3:1", "closed its connection", 5), 3,
           "rank 2 (10.0.0.3:1) closed its connection; the last step that all ranks finished is 5");
}

TEST_CASE("a body with a stop token finishes after a signal, with the signal's exit code") {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Ended ended = program([signal](const std::stop_token& stop) {
      ::raise(signal);
      until_stopped(stop);
    });
    CHECK(ended.code == 128 + signal);
    CHECK(ended.stderr_text.empty());
  }
  // An exit code of the body takes precedence.
  CHECK(program([](const std::stop_token& stop) {
          ::raise(SIGINT);
          until_stopped(stop);
          return 4;
        }).code == 4);
  CHECK(program([](const std::stop_token& stop) {
          ::raise(SIGINT);
          until_stopped(stop);
          throw ls::Error("cannot save");
        }).code == 1);
}

TEST_CASE("a file beyond the limit of file sizes is an error of run_main, not a signal") {
  const testing::Folder folder;
  const auto write = [&](rlim_t most) {
    return [&folder, most] {
      const rlimit limit{most, most};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ls::AtomicFile file(folder / "w");
      file.write(std::string(5000, 'x'));
      file.commit();
    };
  };
  const Ended over = program(write(1000)), within = program(write(10'000));
  CHECK(over.code == 1);
  CHECK_THAT(over.stderr_text,
             ContainsSubstring("File too large") && ContainsSubstring("ulimit -f"));
  CHECK(within.code == 0);
  // A handler of the program stays.
  CHECK(program([] {
          struct sigaction now{};
          ::sigaction(SIGXFSZ, nullptr, &now);
          return now.sa_handler == SIG_IGN ? 4 : 5;
        }).code == 4);
  const auto before = std::signal(SIGXFSZ, [](int) {});
  CHECK(program([] {
          struct sigaction now{};
          ::sigaction(SIGXFSZ, nullptr, &now);
          return now.sa_handler == SIG_IGN ? 4 : 5;
        }).code == 5);
  std::signal(SIGXFSZ, before);
}
