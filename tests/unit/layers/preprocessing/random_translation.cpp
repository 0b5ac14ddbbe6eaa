#include "lockstep/layers/preprocessing/random_translation.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/layers/preprocessing/augmentation_recorded.hpp"
#include "unit/layers/preprocessing/augmentation_support.hpp"

namespace ls = lockstep;
using augmented::forward;

TEST_CASE("RandomTranslation matches Keras for each fill mode and interpolation") {
  const auto translations = recorded::translations();
  REQUIRE(translations.size() == 48);
  for (std::size_t i = 0; i < translations.size(); ++i) {
    const auto& [op, y] = translations[i];
    CAPTURE(i, op.in[0], op.rows.lower, op.columns.lower, static_cast<int>(op.fill.mode));
    const auto x = augmented::recorded_image(op.in);
    // Keras computes source positions in float32.
    CHECK(testing::relative_error(forward<double>(op, x), y) < 2e-6);
    CHECK(testing::relative_error(forward<float>(op, x), y) < 2e-6);
  }
}

TEST_CASE("RandomTranslation moves down and right by fractions of height and width") {
  const auto in = ls::shape(4, 5, 1);
  const auto x = augmented::recorded_image(in);
  const ls::RandomTranslationOp op{in, {0.25f, 0.25f}, {0.4f, 0.4f}, ls::fill_constant(-1)};
  const auto y = forward<double>(op, x);
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t c = 0; c < 5; ++c)
      CHECK(std::abs(y[r * 5 + c] - (r < 1 || c < 2 ? -1 : x[(r - 1) * 5 + c - 2])) < 1e-6);
}

TEST_CASE("RandomTranslation draws height, then width, uniformly") {
  const auto in = ls::shape(6, 5, 2);
  const ls::RandomTranslationOp op{in, {-0.5f, 0.25f}, {0, 1}};
  const testing::RunOptions<double> options{.seed = 4, .pass = 9, .key = 2, .first_ordinal = 70};
  constexpr std::size_t count = 400;
  const auto y = forward<double>(op, augmented::recorded_image(in, count), options);
  std::vector<int> cells(9);
  for (std::size_t n = 0; n < count; ++n) {
    ls::Philox draws = augmented::draws_of(options, 70 + n);
    const double u = draws.uniform(), v = draws.uniform();
    ++cells[static_cast<std::size_t>(3 * u) * 3 + static_cast<std::size_t>(3 * v)];
    const auto down = static_cast<float>(-0.5 + u * 0.75), right = static_cast<float>(v);
    const auto wanted = forward<double>(ls::RandomTranslationOp{in, {down, down}, {right, right}},
                                        augmented::recorded_image(in));
    REQUIRE(testing::relative_error(augmented::row(y, n, count), wanted) < 1e-5);
  }
  CHECK(augmented::chi_squared(cells) < 26);  // exceeded once in a thousand runs
}
