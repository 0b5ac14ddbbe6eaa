#include "lockstep/layers/preprocessing/random_zoom.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/layers/preprocessing/augmentation_support.hpp"

namespace ls = lockstep;
using augmented::forward;

TEST_CASE("RandomZoom reads twice as far from the center for a factor of 1") {
  const auto in = ls::shape(5, 3, 1);
  const auto x = augmented::recorded_image(in);
  const ls::RandomZoomOp op{in, {1, 1}, {1, 1}, ls::fill_constant(-1)};
  const auto y = forward<double>(op, x);
  for (int r = 0; r < 5; ++r)
    for (int c = 0; c < 3; ++c) {
      const int row = 2 * (r - 2) + 2, column = 2 * (c - 1) + 1;
      const bool inside = row >= 0 && row < 5 && column >= 0 && column < 3;
      CHECK(y[static_cast<std::size_t>(r * 3 + c)] ==
            (inside ? x[static_cast<std::size_t>(row * 3 + column)] : -1));
    }
}

TEST_CASE("RandomZoom by -1 reads the center, or the middle row") {
  const auto in = ls::shape(3, 5, 1);
  const auto x = augmented::recorded_image(in);
  const auto center = forward<double>(ls::RandomZoomOp{in, {-1, -1}, {-1, -1}}, x);
  CHECK(center == std::vector<double>(15, x[7]));
  const auto rows = forward<double>(ls::RandomZoomOp{in, {-1, -1}, {0, 0}}, x);
  for (std::size_t i = 0; i < 15; ++i) CHECK(rows[i] == x[5 + i % 5]);
}

TEST_CASE("RandomZoom draws height, then width, uniformly, or one number for both") {
  const auto in = ls::shape(6, 5, 2);
  const testing::RunOptions<double> options{.seed = 4, .pass = 9, .key = 2, .first_ordinal = 70};
  constexpr std::size_t count = 50;
  for (const bool keeps : {false, true}) {
    const ls::RandomZoomOp op{in, {-0.5f, 0.25f}, {0, 1}, {}, ls::bilinear, keeps};
    const auto y = forward<double>(op, augmented::recorded_image(in, count), options);
    for (std::size_t n = 0; n < count; ++n) {
      ls::Philox draws = augmented::draws_of(options, 70 + n);
      const double u = draws.uniform(), v = draws.uniform();
      const auto down = static_cast<float>(-0.5 + u * 0.75);
      const auto across = keeps ? down : static_cast<float>(v);
      const auto wanted = forward<double>(ls::RandomZoomOp{in, {down, down}, {across, across}},
                                          augmented::recorded_image(in));
      REQUIRE(testing::relative_error(augmented::row(y, n, count), wanted) < 1e-5);
    }
  }
}
