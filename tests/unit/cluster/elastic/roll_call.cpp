#include "lockstep/cluster/elastic/roll_call.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <set>

using lockstep::detail::RollCall;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a fresh process asks all others of a job within half of the time to join") {
  // Any of them may be the only one that is left of a job without index 0.
  for (const std::size_t described : {2u, 3u, 64u, 300u, 1024u}) {
    CAPTURE(described);
    const std::size_t self = described / 2;
    RollCall calls(described, self);
    RollCall::Time now(std::chrono::hours(1));
    const auto end = now + seconds(30);
    calls.begin(now);
    std::set<std::size_t> asked;
    for (; now < end; now += milliseconds(20))  // the pace of a process that waits
      if (const auto next = calls.next(now, [](std::size_t) { return false; })) asked.insert(*next);
    CHECK(asked.size() == described - (self == 0 ? 1 : 2));  // index 0 is asked more often
    CHECK_FALSE(asked.contains(self));
  }
}

TEST_CASE(
    "a fresh process asks the others more and more rarely, and once a second if index 0 waits") {
  const auto count = [](bool is_gathering) {
    RollCall calls(10, 3);
    RollCall::Time now(std::chrono::hours(1));
    const auto end = now + seconds(60);
    calls.begin(now);
    int questions = 0;
    for (; now < end; now += milliseconds(20))
      questions +=
          calls.next(now, [&](std::size_t i) { return i == 0 && is_gathering; }).has_value();
    return questions;
  };
  CHECK(count(true) < 60);
  CHECK(count(false) < 80);
  CHECK(count(false) > 60);
}
