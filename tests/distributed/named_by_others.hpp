/// \file
/// A job one of whose processes fails within a fit without an end, and what the others report.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstddef>
#include <string>

#include "distributed/processes.hpp"
#include "lockstep/lockstep.hpp"
#include "unit/training/mirrored_support.hpp"

namespace distributed {

/// In a job of `size` processes, each with a model by make(here), `victim` sends itself `signal` after
/// 20 steps; all others must name it in time.
template <class Make>
void check_named_by_others(std::size_t size, std::size_t victim, const Make& make,
                           int signal = SIGKILL, OtherTasks others = {}) {
  CAPTURE(size, victim, signal);
  Processes job(
      size,
      [&](Here& here) {
        auto model = make(here);
        auto options = line::quiet(1);
        options.steps_per_epoch = 1'000'000;
        options.callbacks = {ls::LambdaCallback{.on_train_batch_end = [&](auto&&...) {
          if (++here.report.steps == 20 && here.rank == victim && here.begin_fault())
            ::raise(signal);
        }}};
        model.fit(line::classes(48) | ls::shuffle(16) | ls::repeat | ls::batch(20), options);
      },
      60s, 1, others);
  REQUIRE(job.all_end({victim}));
  for (std::size_t r = 0; r < size; ++r) {
    if (r == victim) continue;
    INFO("rank " << r << ": " << std::string(job.report(r).what));
    CHECK(job.report(r).outcome == Outcome::peer_lost);
    CHECK(job.report(r).lost_rank == victim);
    // Three times the promise, which is one second, and three for a silent process.
    CHECK(job.report(r).reported_at - job.report(victim).fault_at < (signal == SIGKILL ? 3s : 9s));
  }
}

}  // namespace distributed
