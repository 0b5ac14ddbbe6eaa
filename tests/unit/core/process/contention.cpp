/// \file
/// Detection of contended cores: run delays, the decision, and a real neighbor.
#include "lockstep/core/process/contention.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process/cores.hpp"

using namespace lockstep::detail;
using namespace std::chrono_literals;

namespace {

pid_t this_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

/// Core `index` of this process' cores.
Cores core(std::size_t index) {
  const Cores all;
  return all.share(static_cast<std::size_t>(all.count()), index);
}

/// Contends for core 0 with another thread until `contention` reports it; false after `limit`. The
/// thread is watched before it is bound, as a replica's.
bool detects_neighbor(Contention& contention, std::chrono::seconds limit) {
  bool found = false;
  std::thread([&] {
    contention.watch();
    const CoreScope bound(core(0));
    std::atomic<bool> ends{false};
    std::thread neighbor([&] {  // inherits the core
      while (!ends.load(std::memory_order_relaxed)) {
      }
    });
    contention.watch(core(0));
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!found && std::chrono::steady_clock::now() < end) found = contention.sample();
    ends = true;
    neighbor.join();
  }).join();
  return found;
}

}  // namespace

TEST_CASE("the wait policy is auto, active or passive, and anything else is refused") {
  CHECK(parse_wait_mode(nullptr) == WaitMode::adaptive);
  CHECK(parse_wait_mode("") == WaitMode::adaptive);
  CHECK(parse_wait_mode("auto") == WaitMode::adaptive);
  CHECK(parse_wait_mode("active") == WaitMode::active);
  CHECK(parse_wait_mode("passive") == WaitMode::passive);
  CHECK_THROWS_MATCHES(
      parse_wait_mode("Passive\n"), lockstep::UsageError,
      Catch::Matchers::Message(
          "LOCKSTEP_WAIT_POLICY is \"Passive\\x0a\"; it must be auto, active or passive"));
}

TEST_CASE("the run delay is the second number of the kernel's statistics, if it keeps them") {
  char name[] = "/tmp/lockstep_contention_XXXXXX";
  const std::filesystem::path root = ::mkdtemp(name);
  const auto write = [&](int thread, const char* text) {
    const auto folder = root / "proc/self/task" / std::to_string(thread);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "schedstat") << text;
  };
  write(1, "5000000123 7000000456 12\n");
  write(2, "");
  write(3, "12\n");
  CHECK(read_run_delay(1, root.c_str()) == 7000000456ns);
  CHECK(!read_run_delay(2, root.c_str()));
  CHECK(!read_run_delay(3, root.c_str()));
  CHECK(!read_run_delay(4, root.c_str()));
  std::filesystem::remove_all(root);
}

TEST_CASE("idle time is summed over the cores of a set") {
  const std::string stat =
      "cpu  1000 2 3 6000 5 6 7 8 9 10\n"
      "cpu0 10 20 30 1000 50 60 70 80 0 0\n"
      "cpu1 10 20 30 2000 50 60 70 80 0 0\n"
      "cpu3 10 20 30 3000 50 60 70 80 0 0\n"
      "intr 12 0 5\n";
  CHECK(idle_time(stat, "1") == 10s);
  CHECK(idle_time(stat, "0101") == 50s);
  CHECK(idle_time(stat, "001") == 0s);
  CHECK(idle_time(stat.substr(0, stat.find(" 50 60 70 80 0 0\nintr")), "1111") == 30s);
  CHECK(idle_time("", "11") == 0s);
}

TEST_CASE("the buffer for /proc/stat holds the lines of any number of cores") {
  const std::string longest = " " + std::to_string(std::numeric_limits<std::uint64_t>::max());
  std::string stat;
  for (std::size_t core = 0; core <= 4096; ++core) {
    stat += core == 0 ? "cpu " : "cpu" + std::to_string(core - 1);
    for (int i = 0; i < 10; ++i) stat += longest;
    stat += '\n';
  }
  CHECK(stat.size() <= lockstep::detail::stat_bytes(4096));
}

TEST_CASE("contention starts with the first delay that matters and ends after a calm time") {
  ContentionFilter filter;
  CHECK(!filter.update(0.09, 0.02));
  CHECK(filter.update(0.11, 0.02));
  CHECK(filter.update(0.05, 10));    // less than at the start, but not calm
  CHECK(filter.update(0.01, 0.20));  // calm for 0.20 s
  CHECK(filter.update(0.05, 0.02));  // and again from the start
  CHECK(filter.update(0.01, 0.20));
  CHECK(!filter.update(0.01, 0.06));
}

TEST_CASE("after a premature end contention lasts longer, up to a limit") {
  ContentionFilter filter;
  const auto calm_until_end = [&] {
    double calm = 0.05;
    while (filter.update(0, 0.05)) calm += 0.05;
    return calm;
  };
  const auto is_about = [](double a, double b) { return a > b - 0.01 && a < b + 0.06; };
  for (const double patience : {0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0}) {
    REQUIRE(filter.update(0.5, 0.02));
    CHECK(is_about(calm_until_end(), patience));
  }
  CHECK(!filter.update(0, 3));  // the last end was not premature
  REQUIRE(filter.update(0.5, 0.02));
  CHECK(is_about(calm_until_end(), 0.25));
}

TEST_CASE("a neighbor on the same core is detected, unless the policy is fixed") {
  if (!read_run_delay(this_thread())) SKIP("the kernel keeps no statistics of threads");
  Contention adaptive(WaitMode::adaptive);
  CHECK(detects_neighbor(adaptive, 60s));
  CHECK(is_contended());
  contended_flag() = false;
  Contention active(WaitMode::active), passive(WaitMode::passive);
  CHECK(!active.sample());
  CHECK(passive.sample());
}
