#include "lockstep/testing/run_workers.hpp"

#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): POSIX

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "support/log_lines.hpp"
#include "unit/testing/jobs.hpp"

using namespace jobs;  // NOLINT: the fixture of this file
using Catch::Matchers::ContainsSubstring;

TEST_CASE("simulated workers train to the bits of as many replicas in one process") {
  const std::string expected = train_replicas(4, 12);
  for (const char* wire : {"auto", "plain_on_trusted_network"})
    for (const auto& end : run(4, 12, {.seed = 3, .variables = {{"LOCKSTEP_WIRE", wire}}}))
      CHECK(end.weights == expected);
}

TEST_CASE("the same seed gives the same run, another seed another one") {
  const auto digest = [](std::uint64_t seed) {
    ls::testing::Report report;
    run(3, 5, {.seed = seed, .jitter = 1ms, .loss = 0.01}, &report);
    return report.digest;
  };
  CHECK(digest(1) == digest(1));
  CHECK(digest(2) == digest(2));
  CHECK(digest(1) != digest(2));
}

TEST_CASE("64 simulated workers train") {
  ls::testing::Report report;
  const auto ends = run(64, 2, {}, &report);
  for (const auto& end : ends) CHECK(end.weights == ends[0].weights);
  CHECK(!ends[0].weights.empty());
  CHECK(report.duration < 10s);
}

TEST_CASE("a worker with other options is refused on all ranks") {
  const ::testing::LogLines quiet;
  std::vector<std::string> errors(3);
  ls::testing::run_workers(3, [&](ls::testing::Worker& worker) {
    try {
      train(worker, worker.rank() == 1 ? 5 : 6);
    } catch (const ls::UsageError& e) {
      errors[worker.rank()] = e.what();
    }
  });
  for (const std::string& error : errors) CHECK_THAT(error, ContainsSubstring("steps"));
}

TEST_CASE("workers get the variables of the job and those of the test") {
  std::vector<std::string> values(2);
  ls::testing::run_workers(
      2,
      [&](ls::testing::Worker& worker) {
        const auto value = [&](const char* name) {
          return worker.environment()(name).value_or("none");
        };
        values[worker.rank()] = value("FOLDER") + " " + value("LOCKSTEP_JOB_ID") + " " + value("X");
        CHECK_THAT(value("TF_CONFIG"), ContainsSubstring(worker.address() + ":"));
      },
      {.variables = {{"FOLDER", "/tmp/{rank}/of-{rank}"}, {"LOCKSTEP_JOB_ID", "mine"}}});
  CHECK(values[0] == "/tmp/0/of-0 mine none");
  CHECK(values[1] == "/tmp/1/of-1 mine none");
}

TEST_CASE("threads that poll are refused") {
  ::setenv("LOCKSTEP_WAIT_POLICY", "active", 1);
  CHECK_THROWS_WITH(ls::testing::run_workers(1, [](ls::testing::Worker&) {}),
                    ContainsSubstring("LOCKSTEP_WAIT_POLICY is not 'passive'"));
  ::setenv("LOCKSTEP_WAIT_POLICY", "passive", 1);
}
