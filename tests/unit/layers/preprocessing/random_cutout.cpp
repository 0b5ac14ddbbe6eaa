#include "lockstep/layers/preprocessing/random_cutout.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/layers/preprocessing/augmentation_support.hpp"

namespace ls = lockstep;
using augmented::forward;

namespace {

/// x with the square around a pixel filled.
std::vector<double> holed(std::vector<double> x, const ls::RandomCutoutOp& op, int row, int column,
                          double fill) {
  const int top = row - op.size / 2, left = column - op.size / 2;
  for (int r = 0; r < op.in[0]; ++r)
    for (int c = 0; c < op.in[1]; ++c)
      for (int k = 0; k < op.in[2]; ++k)
        if (r >= top && r < top + op.size && c >= left && c < left + op.size)
          x[static_cast<std::size_t>((r * op.in[1] + c) * op.in[2] + k)] = fill;
  return x;
}

}  // namespace

TEST_CASE(
    "RandomCutout fills a square around a random pixel, row drawn first, and stops gradients") {
  const testing::RunOptions<double> options{.seed = 11, .pass = 3, .key = 13, .first_ordinal = 5};
  constexpr std::size_t count = 600;
  for (const int size : {1, 2, 3, 4}) {
    const ls::RandomCutoutOp op{ls::shape(5, 4, 2), size, 0.5f};
    const auto x = augmented::recorded_image(op.in);
    const auto c = testing::normal_values(count * op.in.size(), 3);
    const auto run = testing::run_layer<ls::Reference<double>>(
        op, count, augmented::recorded_image(op.in, count), {}, c, options);
    std::vector<int> seen(20);
    for (std::size_t n = 0; n < count; ++n) {
      ls::Philox draws = augmented::draws_of(options, 5 + n);
      const auto row = static_cast<int>(draws.below(5)), column = static_cast<int>(draws.below(4));
      ++seen[static_cast<std::size_t>(row * 4 + column)];
      REQUIRE(augmented::row(run.y, n, count) == holed(x, op, row, column, 0.5));
      REQUIRE(augmented::row(run.dx, n, count) ==
              holed(augmented::row(c, n, count), op, row, column, 0));
    }
    CHECK(augmented::chi_squared(seen) < 44);  // exceeded once in a thousand runs
  }
}

TEST_CASE("RandomCutout may be larger than the image, and leaves pixels outside it unchanged") {
  const ls::RandomCutoutOp op{ls::shape(3, 3, 1), 2'147'483'647};
  CHECK(forward<double>(op, augmented::recorded_image(op.in)) == std::vector<double>(9, 0.0));
}
