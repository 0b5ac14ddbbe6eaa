#include "lockstep/layers/preprocessing/random_crop.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/layers/preprocessing/augmentation_recorded.hpp"
#include "unit/layers/preprocessing/augmentation_support.hpp"

namespace ls = lockstep;
using augmented::forward;

namespace {

std::vector<double> window(const std::vector<double>& x, const ls::RandomCropOp& op,
                           std::size_t row, std::size_t column) {
  std::vector<double> y;
  const auto width = static_cast<std::size_t>(op.in[1]),
             channels = static_cast<std::size_t>(op.in[2]);
  for (std::size_t r = 0; r < static_cast<std::size_t>(op.height); ++r)
    for (std::size_t i = 0; i < static_cast<std::size_t>(op.width) * channels; ++i)
      y.push_back(x[((row + r) * width + column) * channels + i]);
  return y;
}

}  // namespace

TEST_CASE("RandomCrop outside training does what Keras documents") {
  const auto crops = recorded::crops();
  REQUIRE(crops.size() == 6);
  for (const auto& [op, y] : crops) {
    CAPTURE(op.in[0], op.in[1], op.height, op.width);
    const auto x = augmented::recorded_image(op.in, 2);
    const auto both = forward<double>(op, x, {.training = false});
    CHECK(testing::relative_error(augmented::row(both, 0, 2), y) < 1e-6);
    CHECK(augmented::row(both, 1, 2) == augmented::row(both, 0, 2));
    CHECK(testing::relative_error(
              forward<float>(op, augmented::recorded_image(op.in), {.training = false}), y) < 1e-6);
  }
}

TEST_CASE("RandomCrop of smaller images resizes during training too") {
  const auto crops = recorded::crops();
  int smaller = 0;
  for (const auto& [op, y] : crops) {
    if (op.fits()) continue;
    ++smaller;
    CHECK(testing::relative_error(forward<double>(op, augmented::recorded_image(op.in)), y) < 1e-6);
  }
  CHECK(smaller == 3);
}

TEST_CASE("RandomCrop picks each window equally often, with the row drawn first") {
  const ls::RandomCropOp op{ls::shape(7, 6, 2), 4, 4};
  const testing::RunOptions<double> options{.seed = 11, .pass = 3, .key = 13, .first_ordinal = 5};
  constexpr std::size_t count = 600;
  const auto x = augmented::recorded_image(op.in);
  const auto y = forward<double>(op, augmented::recorded_image(op.in, count), options);
  std::vector<int> seen(12);
  for (std::size_t n = 0; n < count; ++n) {
    ls::Philox draws = augmented::draws_of(options, 5 + n);
    const std::size_t row = draws.below(4), column = draws.below(3);
    ++seen[row * 3 + column];
    REQUIRE(augmented::row(y, n, count) == window(x, op, row, column));
  }
  CHECK(augmented::chi_squared(seen) < 31);  // exceeded once in a thousand runs
}

TEST_CASE("RandomCrop to the image size is the identity, to its height shifts sideways only") {
  const auto in = ls::shape(3, 5, 1);
  const auto x = augmented::recorded_image(in);
  CHECK(forward<double>(ls::RandomCropOp{in, 3, 5}, x) == x);
  CHECK(forward<double>(ls::RandomCropOp{in, 3, 5}, x, {.training = false}) == x);
  const ls::RandomCropOp op{in, 3, 2};
  const auto y = forward<double>(op, augmented::recorded_image(in, 100));
  std::vector<int> seen(4);
  for (std::size_t n = 0; n < 100; ++n)
    for (std::size_t column = 0; column < 4; ++column)
      seen[column] += augmented::row(y, n, 100) == window(x, op, 0, column) ? 1 : 0;
  for (const int times : seen) CHECK(times > 8);
}
