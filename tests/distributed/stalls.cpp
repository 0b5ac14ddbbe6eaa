/// A process is alive and sends heartbeats, but its training or its data connections hang.
#include <fmt/format.h>
#include <chrono>
#include <string>
#include <tuple>
#include <utility>

#include "distributed/faults.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;

namespace {

constexpr std::size_t workers = 4;
constexpr ls::StallLimits two_seconds{.stall = 2s, .idle = 2s};

bool fault_begins(const Fault& plan, Processes& job) {
  return job.until([&] { return job.report(plan.rank).fault_injected || job.has_ended(0); });
}

/// All ranks must have thrown PeerLost for the same rank, and have exited.
void all_name_the_same(Processes& job, const Fault& plan, milliseconds limit, Times& times) {
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  const Report& first = job.report(0);
  for (std::size_t r = 0; r < job.size(); ++r) {
    const Report& report = job.report(r);
    CAPTURE(r, report.what.text, first.what.text);
    REQUIRE(report.outcome == Outcome::peer_lost);
    CHECK(report.lost_rank == first.lost_rank);
    CHECK(std::string(report.lost_address) == job.address(first.lost_rank));
    CHECK((job.end(r).exited && job.end(r).status == 3));
    if (r == plan.rank) continue;
    times.to_report.push_back(between(job.report(plan.rank).fault_at, report.reported_at));
    CHECK(times.to_report.back() <= limit);
  }
  CHECK(job.has_no_orphans());
}

}  // namespace

TEST_CASE("a worker whose training hangs is named with step and phase by all others") {
  struct Row {
    Place place;
    const char* phase;
  };
  Times times;
  std::size_t rank = 0;
  for (const Row& row : {Row{Place::forward, "forward"}, Row{Place::backward, "backward"},
                         Row{Place::optimizer, "update"}, Row{Place::after_step, "a callback"}}) {
    const Fault plan{rank++ % workers, 2, row.place, FaultKind::hang};
    CAPTURE(plan.rank, row.phase);
    Processes job(workers, [&](Here& own) {
      train_on(own, plan, 1 + plan.rank % 2, 1'000'000, two_seconds);
    });
    REQUIRE(fault_begins(plan, job));
    REQUIRE(job.all_end({plan.rank}));
    CAPTURE(job.logs());
    CHECK_FALSE(job.has_ended(plan.rank));
    // Counted from the limit.
    job.report(plan.rank).fault_at += two_seconds.stall;
    survivors_report(job, plan.rank, 1s, times);
    const std::string how = job.report(plan.rank == 0 ? 1 : 0).how;
    CHECK(how.find(fmt::format("is alive, but made no progress in {} of step {} for 2", row.phase,
                               plan.step)) == 0);
    CHECK(times.to_report.back() >= 0ms);
    job.signal(plan.rank, SIGKILL);
    REQUIRE(job.all_end());
    CHECK(job.has_no_orphans());
  }
  times.print("stood still, after the limit");
}

TEST_CASE("a first step and a callback can take longer than another step") {
  constexpr ls::StallLimits limits{.stall = 1s, .idle = 60s};
  for (const auto& [step, place] :
       {std::pair{0, Place::forward}, std::pair{2, Place::after_step}}) {
    const Fault plan{1, static_cast<std::uint64_t>(step), place, FaultKind::rest, 0us, 3s};
    CAPTURE(to_string(place));
    Processes job(2, [&](Here& own) { train_on(own, plan, 1, 2, limits); });
    REQUIRE(job.all_end());
    for (std::size_t r = 0; r < job.size(); ++r) {
      CAPTURE(r, job.report(r).what.text);
      CHECK(job.report(r).outcome == Outcome::done);
      CHECK(job.report(r).steps == 2 * steps_of_an_epoch);
    }
    CHECK(job.report(1).fault_injected);
  }
  const Fault plan{1, 2, Place::forward, FaultKind::rest, 0us, 3s};
  Processes job(2, [&](Here& own) { train_on(own, plan, 1, 2, limits); });
  REQUIRE(job.all_end());
  CHECK(job.report(0).outcome == Outcome::peer_lost);
  CHECK(job.report(0).lost_rank == 1);
}

TEST_CASE("every ten seconds the chief logs the straggler and its phase", "[.slow]") {
  const Fault plan{2, 3, Place::after_step, FaultKind::rest, 0us, 23s};
  Processes job(3, [&](Here& own) { train_on(own, plan, 1, 2); });
  REQUIRE(fault_begins(plan, job));
  const std::string line = fmt::format(
      "rank 2 (worker:2, {}) made no progress in a callback of step 3 for ", job.address(2));
  std::size_t seen = 0;  // the lines read so far
  for (const std::chrono::seconds least : {10s, 20s}) {
    CAPTURE(line, least.count());
    REQUIRE(job.until(
        [&] { return job.logs().find(line, seen) != std::string::npos || job.has_ended(0); }));
    const std::string logs = job.logs();
    CAPTURE(logs);
    REQUIRE_FALSE(job.has_ended(0));
    seen = logs.find(line, seen) + line.size();
    // The rank's own clock excludes the time when it ran late.
    const double reported = std::stod(logs.substr(seen));
    CHECK(reported > static_cast<double>(least.count()) - 2);
    CHECK(reported < static_cast<double>(least.count()) + 3);
    const auto after = Clock::now() - job.report(2).fault_at;
    CHECK(after >= least);
    CHECK(after <= least + 3s);
  }
  // The rank was only slow: none is lost.
  REQUIRE(job.all_end());
  const std::string logs = job.logs();
  CAPTURE(logs);
  for (std::size_t r = 0; r < job.size(); ++r) {
    CHECK(job.report(r).outcome == Outcome::done);
    CHECK(job.report(r).steps == 2 * steps_of_an_epoch);
  }
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = logs.find("made no progress", at)) != std::string::npos; ++at)
    ++lines;
  CHECK(lines == 2);
  CHECK(logs.find("; the job ends after 600 s") != std::string::npos);
  CHECK(logs.find("made no progress") < logs.find("--- rank 1"));
}

TEST_CASE("when data connections are reset in an exchange, all name the same rank in time") {
  Times times;
  for (const std::size_t rank : {0u, 1u, 3u})
    for (const int into_reduce : {0, 300, 900, 2000}) {
      const Fault plan{
          rank, 2,    Place::reduce, FaultKind::reset, std::chrono::microseconds(into_reduce),
          0s,   "tcp"};
      CAPTURE(plan.rank, into_reduce);
      Processes job(workers, [&](Here& own) { train_on(own, plan, 1 + rank % 2); });
      all_name_the_same(job, plan, 3 * 1s, times);
    }
  times.print("connections reset");
}

TEST_CASE("a worker that no longer reads ends the exchange at the limit, and the job for all") {
  Times times;
  // Also between two messages, when some of the others already have its part.
  for (const auto& [rank, place, into_reduce] : {std::tuple{0u, Place::before_step, 0},
                                                 {2u, Place::before_step, 0},
                                                 {0u, Place::reduce, 0},
                                                 {2u, Place::reduce, 100},
                                                 {3u, Place::reduce, 300}}) {
    const Fault plan{
        rank, 2,    place, FaultKind::stop_reading_data, std::chrono::microseconds(into_reduce),
        0s,   "tcp"};
    CAPTURE(plan.rank, into_reduce);
    Processes job(workers, [&](Here& own) { train_on(own, plan, 1, 1'000'000, two_seconds); });
    all_name_the_same(job, plan, two_seconds.stall + 3 * 1s, times);
    const std::string how = job.report(rank == 0 ? 1 : 0).how;
    CAPTURE(how);
    CHECK(how.find("is alive, but made no progress in reduce of step ") == 0);
    CHECK(job.report(rank == 0 ? 1 : 0).lost_rank == rank);
  }
  times.print("no longer reads, limit 2 s");
}

TEST_CASE("a worker that hangs in a hook between epochs is named by all others") {
  struct Row {
    std::size_t rank;
    int epoch;
    bool at_end;
  };
  for (const Row& row :
       {Row{1, 0, false}, {1, 1, false}, {0, 1, false}, {1, 0, true}, {2, 1, true}, {0, 1, true}}) {
    CAPTURE(row.rank, row.epoch, row.at_end);
    Processes job(3, [&](Here& own) {
      const auto hang = [&](bool at_end, int epoch) {
        if (own.rank != row.rank || at_end != row.at_end || epoch != row.epoch) return;
        own.begin_fault();
        for (;;) std::this_thread::sleep_for(1s);
      };
      ls::Model model{
          line::Classes{},
          ls::MultiWorkerMirrored<ls::Reference<double>>{.stall_limits = {.stall = 1s, .idle = 2s}},
          replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
      auto options = line::quiet(3);
      options.callbacks = {ls::LambdaCallback{
          .on_epoch_begin = [&](int epoch, const ls::Logs&) { hang(false, epoch); },
          .on_epoch_end = [&](int epoch, const ls::Logs&) { hang(true, epoch); }}};
      own.run_and_report([&] { model.fit(line::classes(24) | ls::batch(8), options); });
    });
    REQUIRE(job.all_end({row.rank}));
    CAPTURE(job.logs());
    CHECK(job.report(row.rank).fault_injected);
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      if (rank == row.rank) continue;
      CAPTURE(rank, job.report(rank).what.text);
      CHECK(job.report(rank).outcome == Outcome::peer_lost);
      CHECK(job.report(rank).lost_rank == row.rank);
    }
    job.signal(row.rank, SIGKILL);
    REQUIRE(job.all_end());
  }
}
