/// The cores of workers on one machine, and processes forked from a worker.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/core/process/cores.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"
#include "support/child.hpp"

using namespace distributed;
using ls::detail::Cores;

namespace {

std::vector<double> numbers_of(const Cores& cores) {
  std::vector<double> result;
  for (const char bit : cores.bits()) result.push_back(bit == '1');
  return result;
}

/// The cores of each rank's replica while it computes; the caller's are restored afterwards.
std::vector<std::vector<double>> cores_of(std::size_t workers,
                                          const std::function<Cores(std::size_t rank)>& allowed,
                                          const ls::MultiWorkerMirrored<ls::Cpu>& strategy) {
  Processes job(workers, [&](Here& here) {
    here.run_and_report([&] {
      allowed(here.rank).bind();
      auto session = ls::MultiWorkerMirrored<ls::Cpu>(strategy).open();
      session.each([&](const ls::ReplicaContext<ls::Cpu>&) { here.give(numbers_of(Cores())); });
      if (Cores() != allowed(here.rank)) throw ls::Error("the thread was not let go");
    });
  });
  REQUIRE(job.all_end());
  std::vector<std::vector<double>> result;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    CAPTURE(rank, job.report(rank).what.text, job.logs());
    REQUIRE(job.report(rank).outcome == Outcome::done);
    result.push_back(job.numbers(rank));
  }
  return result;
}

}  // namespace

TEST_CASE("workers whose threads fill the cores get a share of them each") {
  const Cores all;
  const auto seen = cores_of(2, [&](std::size_t) { return all; }, {.bind_cores = true});
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(seen[rank] == numbers_of(all.share(2, rank)));
}

TEST_CASE("workers are not bound if binding is disabled") {
  const Cores all;
  const auto seen = cores_of(2, [&](std::size_t) { return all; }, {.bind_cores = false});
  for (const auto& cores : seen) CHECK(cores == numbers_of(all));
}

TEST_CASE("workers that leave cores free are not bound") {
  const Cores all;
  if (all.count() < 3) SKIP("two workers of one thread occupy both cores");
  const auto seen = cores_of(2, [&](std::size_t) { return all; }, {.on = {.threads = 1}});
  for (const auto& cores : seen) CHECK(cores == numbers_of(all));
}

TEST_CASE("a worker with its own cores keeps all of them") {
  const Cores all;
  if (all.count() < 2) SKIP("one core cannot be divided");
  const auto mine = [&](std::size_t rank) { return all.share(2, rank); };
  const auto seen = cores_of(2, mine, {});
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(seen[rank] == numbers_of(mine(rank)));
}

TEST_CASE("a process forked from a worker is refused, and the job continues without it") {
  Processes job(2, [&](Here& here) {
    here.run_and_report([&] {
      auto session = ls::MultiWorkerMirrored<ls::Cpu>{.on = {.threads = 1}}.open();
      const auto sum = [&] {
        float result = 1;
        session.each([&](const ls::ReplicaContext<ls::Cpu>& replica) {
          replica.group.all_reduce(&result, 1);
        });
        return result;
      };
      const auto refuses = [&](const auto& call) {
        try {
          call();
        } catch (const ls::UsageError& e) {
          return std::string(e.what()).starts_with(
              "multi_worker_mirrored: this process was forked");
        }
        return false;
      };
      if (sum() != 2) throw ls::Error("wrong sum");
      const int child = testing::in_child([&] {
        const bool all = refuses(sum) && refuses([&] { session.agree("fit", {}); });
        auto ended = std::move(session);  // its destructor must not reach the other workers
        return all ? 0 : 1;
      });
      here.give({static_cast<double>(child), sum()});
    });
  });
  REQUIRE(job.all_end());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CAPTURE(rank, job.report(rank).what.text, job.logs());
    REQUIRE(job.report(rank).outcome == Outcome::done);
    CHECK(job.numbers(rank) == std::vector<double>{0, 2});
  }
}
