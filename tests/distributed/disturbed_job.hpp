/// \file
/// A job whose workers the test kills and starts again. Invariant: what it reports as trained was
/// trained by processes that no signal has ended since.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "distributed/processes.hpp"

namespace distributed {

/// A job whose workers are killed and started again.
class DisturbedJob {
 public:
  /// The work of each process counts its steps in its report and gives its results, the weights last.
  DisturbedJob(std::size_t workers, const Processes::Work& work, std::uint32_t seed,
               milliseconds limit)
      : random_(seed), job_(workers, work, limit), were_killed_(workers) {}

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  Processes& job() { return job_; }
  std::vector<std::size_t> alive() {
    std::vector<std::size_t> all;
    for (std::size_t r = 0; r < job_.size(); ++r)
      if (!job_.has_ended(r)) all.push_back(r);
    return all;
  }
  /// Whether a worker that has trained, and so has the job's state, is left without `victims`.
  bool leaves_state(const std::vector<std::size_t>& victims) {
    const std::vector<std::size_t> all = trained();
    return std::any_of(all.begin(), all.end(), [&](std::size_t r) {
      return std::find(victims.begin(), victims.end(), r) == victims.end();
    });
  }
  /// Those that have made a step since they were started.
  std::vector<std::size_t> trained() {
    std::vector<std::size_t> all = alive();
    std::erase_if(all, [&](std::size_t r) { return job_.report(r).steps == 0; });
    return all;
  }
  bool has_finished() {
    for (std::size_t r = 0; r < job_.size(); ++r)
      if (job_.report(r).outcome == Outcome::done) return true;
    return false;
  }
  void kill(const std::vector<std::size_t>& victims) {
    for (const std::size_t r : victims) {
      std::printf("kill %zu after %llu steps\n", r,
                  static_cast<unsigned long long>(job_.report(r).steps.load()));
      job_.signal(r, SIGKILL);
    }
    for (const std::size_t r : victims) {
      were_killed_[r] = true;
      REQUIRE(job_.until([&] { return job_.has_ended(r); }));
    }
    kills_ += victims.size();
  }
  /// Also those that ended because they waited to join a generation that could not be formed.
  void restart_all() {
    for (std::size_t r = 0; r < job_.size(); ++r)
      if (was_killed(r)) job_.restart(r);
  }
  /// Waits until a worker has made two more steps, or has ended. \returns how long it took.
  milliseconds until_training() {
    const Clock::time_point begin = Clock::now();
    std::vector<std::uint64_t> before;
    for (std::size_t r = 0; r < job_.size(); ++r) before.push_back(job_.report(r).steps);
    REQUIRE(job_.until([&] {
      if (has_finished()) return true;
      // As a launcher does: a worker may be refused because the generation that it joined failed.
      for (std::size_t r = 0; r < job_.size(); ++r)
        if (was_killed(r) && job_.report(r).outcome != Outcome::none) {
          std::printf("worker %zu after %llu steps: %s\n", r,
                      static_cast<unsigned long long>(job_.report(r).steps.load()),
                      job_.report(r).what.text);
          job_.restart(r);
          before[r] = 0;
        }
      for (std::size_t r = 0; r < job_.size(); ++r)
        if (job_.report(r).steps >= before[r] + 2) return true;
      return false;
    }));
    return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  }
  bool was_killed(std::size_t r) {
    return were_killed_[r] && job_.has_ended(r) && job_.report(r).outcome != Outcome::done;
  }
  std::size_t kills() const { return kills_; }

  /// Waits for the workers that were never killed, or else for two, and compares all results.
  void check(const std::vector<double>& quiet, std::size_t weights) {
    CHECK(job_.until([&] {
      std::size_t done = 0;
      for (std::size_t r = 0; r < job_.size(); ++r) {
        if (!were_killed_[r] && !job_.has_ended(r)) return false;
        if (job_.has_ended(r) && job_.report(r).outcome == Outcome::done) ++done;
      }
      if (done < 2) restart_all();
      return done >= 2;
    }));
    INFO(job_.logs());
    for (std::size_t r = 0; r < job_.size(); ++r) {
      if (!job_.has_ended(r) || was_killed(r)) continue;
      CAPTURE(r, std::string(job_.report(r).what));
      CHECK(job_.report(r).outcome == Outcome::done);
      const std::vector<double> found = job_.numbers(r);
      REQUIRE(found.size() >= weights);
      // One that joined after the end of `fit` has the weights only.
      const auto count =
          static_cast<std::ptrdiff_t>(found.size() == quiet.size() ? found.size() : weights);
      CHECK(std::equal(found.end() - count, found.end(), quiet.end() - count));
    }
  }

 private:
  std::mt19937 random_;
  Processes job_;
  std::vector<bool> were_killed_;
  std::size_t kills_ = 0;
};

}  // namespace distributed
