#include "lockstep/layers/preprocessing/random_rotation.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "unit/layers/preprocessing/augmentation_recorded.hpp"
#include "unit/layers/preprocessing/augmentation_support.hpp"

namespace ls = lockstep;
using augmented::forward;

TEST_CASE("RandomRotation matches Keras for each fill mode and interpolation") {
  const auto rotations = recorded::rotations();
  REQUIRE(rotations.size() == 64);
  for (std::size_t i = 0; i < rotations.size(); ++i) {
    const auto& [op, y] = rotations[i];
    CAPTURE(i, op.in[0], op.factor.lower, static_cast<int>(op.fill.mode));
    const auto x = augmented::recorded_image(op.in);
    // Keras computes source positions in float32.
    CHECK(testing::relative_error(forward<double>(op, x), y) < 2e-6);
    CHECK(testing::relative_error(forward<float>(op, x), y) < 2e-6);
  }
}

TEST_CASE("RandomRotation by quarter turns is exact") {
  const auto in = ls::shape(4, 4, 1);
  const auto x = augmented::recorded_image(in);
  const auto y = forward<double>(ls::RandomRotationOp{in, {0.25f, 0.25f}}, x);
  // Counterclockwise: the right column becomes the top row.
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t c = 0; c < 4; ++c) CHECK(std::abs(y[r * 4 + c] - x[c * 4 + 3 - r]) < 1e-12);
}

TEST_CASE("RandomRotation draws its angle uniformly from the example's first number") {
  const auto in = ls::shape(5, 5, 1);
  const ls::RandomRotationOp op{in, {-0.25f, 0.5f}};
  const testing::RunOptions<double> options{.seed = 11, .pass = 3, .key = 13, .first_ordinal = 5};
  constexpr std::size_t count = 400;
  const auto y = forward<double>(op, augmented::recorded_image(in, count), options);
  std::vector<int> tenths(10);
  for (std::size_t n = 0; n < count; ++n) {
    const double u = augmented::draws_of(options, 5 + n).uniform();
    ++tenths[static_cast<std::size_t>(10 * u)];
    const auto angle = static_cast<float>(-0.25 + u * 0.75);
    const auto wanted =
        forward<double>(ls::RandomRotationOp{in, {angle, angle}}, augmented::recorded_image(in));
    REQUIRE(testing::relative_error(augmented::row(y, n, count), wanted) < 1e-5);
  }
  CHECK(augmented::chi_squared(tenths) < 28);  // exceeded once in a thousand runs
}
