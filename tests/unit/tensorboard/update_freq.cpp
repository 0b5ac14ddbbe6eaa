#include "lockstep/tensorboard/update_freq.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>

#include "lockstep/core/error.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("values of batches are due at each multiple of update_freq") {
  const ls::UpdateFreq batch = "batch", epoch = "epoch", third = 3;
  for (std::uint64_t step = 0; step < 10; ++step) {
    CHECK(batch.is_due(step, step + 1));
    CHECK_FALSE(epoch.is_due(step, step + 1));
    CHECK(third.is_due(step, step + 1) == ((step + 1) % 3 == 0));
  }
  CHECK(third.is_due(3, 8));  // executions of several steps
  CHECK_FALSE(third.is_due(3, 5));
}

TEST_CASE("an unknown update_freq is rejected") {
  CHECK_THROWS_MATCHES(ls::UpdateFreq("step"), ls::UsageError,
                       MessageMatches(ContainsSubstring("update_freq is 'step'")));
  for (const int wrong : {0, -1})
    CHECK_THROWS_MATCHES(ls::UpdateFreq(wrong), ls::UsageError,
                         MessageMatches(ContainsSubstring("at least 1 step")));
}
