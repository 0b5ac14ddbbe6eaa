#include "lockstep/layers/preprocessing/random_flip.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "unit/layers/preprocessing/augmentation_recorded.hpp"
#include "unit/layers/preprocessing/augmentation_support.hpp"

namespace ls = lockstep;
using augmented::forward;

TEST_CASE("RandomFlip flips each image with probability 1/2, as Keras flips it") {
  const auto flips = recorded::flips();
  constexpr std::size_t count = 400;
  REQUIRE(flips.size() == 6);
  for (const auto& [op, flipped] : flips) {
    CAPTURE(static_cast<int>(op.mode), op.in[0]);
    const auto x = augmented::recorded_image(op.in);
    const auto y = forward<double>(op, augmented::recorded_image(op.in, count));
    int heads = 0;
    for (std::size_t n = 0; n < count; ++n) {
      const auto one = augmented::row(y, n, count);
      heads += one == flipped ? 1 : 0;
      REQUIRE((one == flipped || one == x));  // both directions or none
    }
    CHECK(std::abs(heads - 200) < 40);  // four standard deviations
  }
}

TEST_CASE("RandomFlip flips an example whose first word is below 2^31") {
  const auto flips = recorded::flips();
  const ls::RandomFlipOp op{ls::shape(2, 3, 1), ls::FlipMode::horizontal};
  const testing::RunOptions<double> options{.seed = 11, .pass = 3, .key = 13, .first_ordinal = 5};
  const auto x = augmented::recorded_image(op.in);
  const auto y = forward<double>(op, augmented::recorded_image(op.in, 50), options);
  for (std::size_t n = 0; n < 50; ++n)
    CHECK((augmented::row(y, n, 50) != x) == (augmented::draws_of(options, 5 + n)() < 0x80000000u));
}
