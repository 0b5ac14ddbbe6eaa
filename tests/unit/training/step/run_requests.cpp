#include "lockstep/training/step/run_requests.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <vector>

using lockstep::detail::RunRequests;
using lockstep::detail::SummedRequests;

namespace {

/// The requests of several replicas, each with one slice, after their sums.
RunRequests agreed(const std::vector<RunRequests>& all) {
  std::array<double, sizeof(SummedRequests) / sizeof(double)> sums{};
  std::vector<double> rates;
  for (const RunRequests& requests : all) {
    const SummedRequests own = SummedRequests::of(requests);
    const auto* const numbers = reinterpret_cast<const double*>(&own);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += numbers[i];
    rates.push_back(SummedRequests::encoded(requests.learning_rate));
  }
  SummedRequests summed;
  std::memcpy(&summed, sums.data(), sizeof summed);
  return summed.requests(rates);
}

}  // namespace

TEST_CASE("summed requests are those of any replica, with the signal and the first rate") {
  const RunRequests none = agreed({{}, {}});
  CHECK(!none.stop_now);
  CHECK(!none.end_training);
  CHECK(!none.admit);
  CHECK(!none.chief_terminated);
  CHECK(none.signal == 0);
  CHECK(!none.learning_rate);
  CHECK(!none.chief_rate);
  const RunRequests some = agreed(
      {{.chief_rate = 0.25},
       {.stop_now = true, .signal = SIGTERM, .chief_terminated = true},
       {.end_training = true, .learning_rate = 0.0, .admit = true},
       {.stop_now = true, .learning_rate = 0.5, .signal = SIGTERM, .owner_terminated = true}});
  CHECK(some.stop_now);
  CHECK(some.end_training);
  CHECK(some.admit);
  CHECK(some.chief_terminated);
  CHECK(some.signal == SIGTERM);
  CHECK(some.learning_rate == 0.0);
  CHECK(some.chief_rate == 0.25);
  CHECK(some.stopping == 2);
  CHECK(some.terminated == 2);
  CHECK(some.owners_terminated == 1);
}

TEST_CASE("different signals count as SIGTERM, and SIGINT ends nobody's membership") {
  const RunRequests both =
      agreed({{.stop_now = true, .signal = SIGINT}, {.stop_now = true, .signal = SIGHUP}});
  CHECK(both.signal == SIGTERM);
  CHECK(both.terminated == 1);
  CHECK(agreed({{.stop_now = true, .signal = SIGINT}}).terminated == 0);
}

TEST_CASE("a request to join does not outlive the change of the job's members") {
  const RunRequests left =
      RunRequests{.stop_now = true, .learning_rate = 0.5, .signal = SIGTERM, .admit = true}
          .lasting();
  CHECK(left.stop_now);
  CHECK(left.signal == SIGTERM);
  CHECK(!left.admit);
  CHECK(!left.learning_rate);
}
