#include "lockstep/cluster/network/file_limit.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;

namespace {

/// Sets both limits in a child process, and returns the output of `body` there.
std::string with_limit(rlim_t files, const std::function<std::string()>& body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::alarm(30);
    const rlimit limit{files, files};
    std::string text = ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? body() : "no limit";
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string result;
  char chunk[512];
  for (ssize_t n; (n = ::read(ends[0], chunk, sizeof chunk)) > 0;)
    result.append(chunk, static_cast<std::size_t>(n));
  ::close(ends[0]);
  ::waitpid(pid, nullptr, 0);
  return result;
}

}  // namespace

TEST_CASE("a limit of open files that is too small is reported with the number that is needed") {
  // The number in the message is exactly the limit that suffices.
  const auto check = [] {
    return sentence<lockstep::Error>([] { lockstep::detail::check_file_limit(100, "100 doors"); });
  };
  const std::string message = with_limit(64, check);
  CAPTURE(message);
  CHECK(message.find("100 doors need 100 files in addition to ") == 0);
  CHECK(message.find("but this process may open 64; raise the limit to at least ") !=
        std::string::npos);
  const auto at = message.find("(ulimit -n ");
  REQUIRE(at != std::string::npos);
  const rlim_t needed = std::stoul(message.substr(at + 11));
  CHECK(needed > 100);
  CHECK(with_limit(needed - 1, check) == message.substr(0, message.find("may open 64")) +
                                             fmt::format("may open {}", needed - 1) +
                                             message.substr(message.find("; raise")));
  CHECK(with_limit(needed, check) == "no error");
}

TEST_CASE("a chief that may open too few files reports it before it waits for the workers") {
  const auto join_as = [](std::size_t rank) {
    return [rank] {
      Lines lines;
      const auto began = Clock::now();
      const auto message =
          sentence<lockstep::Error>([&] { join(options(rank, 200, free_port(), lines, 1500ms)); });
      return fmt::format("{} {}", Clock::now() - began < 1s ? "at once:" : "late:", message);
    };
  };
  const std::string chief = with_limit(100, join_as(0)), worker = with_limit(100, join_as(1));
  CAPTURE(chief, worker);
  CHECK(chief.find("at once: rendezvous: the connections of a job of 200 workers need 200 files") ==
        0);
  CHECK(chief.find("but this process may open 100; raise the limit to at least 2") !=
        std::string::npos);
  CHECK(worker.find("late: rank 0 (127.0.0.1:") == 0);  // it needs one connection
}
