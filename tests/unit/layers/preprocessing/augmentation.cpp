/// \file
/// The contract of all augmentation layers, whatever they draw.
#include "lockstep/layers/preprocessing/augmentation.hpp"

#include <catch2/catch_template_test_macros.hpp>

#include "unit/layers/preprocessing/augmentation_support.hpp"

namespace ls = lockstep;
using augmented::forward;

namespace {

constexpr auto image = ls::shape(6, 7, 3);

// Aliases: test names must not contain brackets and commas.
using Translation = ls::RandomTranslation<ls::factor(0.4), ls::factor(0.5)>;
using Wrapped = ls::RandomTranslation<ls::factor(1), ls::factor(1), ls::fill_wrap, ls::nearest>;
using Rotation = ls::RandomRotation<ls::factor(0.3)>;
using Filled = ls::RandomRotation<ls::factor(-0.1, 0.5), ls::fill_constant(2)>;
using Flip = ls::RandomFlip<>;
using Crop = ls::RandomCrop<3, 4>;
using Small = ls::RandomCrop<3, 9>;
using Cutout = ls::RandomCutout<3>;
using Zoom = ls::RandomZoom<ls::factor(0.4)>;
using Stretch = ls::RandomZoom<ls::factor(0), ls::factor(-0.5, 0.9), ls::fill_constant(2)>;
using Contrast = ls::RandomContrast<ls::factor(0.5), ls::value_range(-1, 1)>;
using Brightness = ls::RandomBrightness<ls::factor(0.5), ls::value_range(-1, 1)>;

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

#define EACH_LINEAR Translation, Wrapped, Rotation, Filled, Flip, Crop, Small, Cutout, Zoom, Stretch
#define EACH_LAYER EACH_LINEAR, Contrast, Brightness
#define EACH_THAT_DRAWS \
  Translation, Wrapped, Rotation, Filled, Flip, Crop, Cutout, Zoom, Stretch, Contrast, Brightness

TEMPLATE_TEST_CASE("the result for an example does not depend on how the batch is split", "",
                   EACH_LAYER) {
  const auto op = TestType::op(image);
  const auto x = testing::normal_values(7 * image.size(), 4);
  const auto whole = forward<float>(op, x, {.first_ordinal = 100});
  for (const std::size_t cut : {1u, 2u, 3u, 6u}) {
    const auto middle = x.begin() + static_cast<std::ptrdiff_t>(cut * image.size());
    auto parts = forward<float>(op, {x.begin(), middle}, {.first_ordinal = 100});
    const auto rest = forward<float>(op, {middle, x.end()}, {.first_ordinal = 100 + cut});
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == whole);
  }
  std::vector<float> slices;  // seven slices of one example each
  for (std::size_t n = 0; n < 7; ++n) {
    const auto one = forward<float>(op, augmented::row(x, n, 7), {.first_ordinal = 100 + n});
    slices.insert(slices.end(), one.begin(), one.end());
  }
  CHECK(slices == whole);
}

TEMPLATE_TEST_CASE("draws differ by seed, pass, layer and example", "", EACH_THAT_DRAWS) {
  const auto op = TestType::op(image);
  std::vector<double> x;  // the same image 20 times
  for (int n = 0; n < 20; ++n) {
    const auto one = testing::normal_values(image.size(), 4);
    x.insert(x.end(), one.begin(), one.end());
  }
  const auto y = forward<double>(op, x);
  CHECK(forward<double>(op, x) == y);
  CHECK(forward<double>(op, x, {.seed = 2}) != y);
  CHECK(forward<double>(op, x, {.pass = 1}) != y);
  CHECK(forward<double>(op, x, {.key = 8}) != y);
  CHECK(forward<double>(op, x, {.first_ordinal = 20}) != y);
  bool alike = true;
  for (std::size_t n = 1; n < 20; ++n)
    alike = alike && augmented::row(y, n, 20) == augmented::row(y, 0, 20);
  CHECK_FALSE(alike);
}

TEMPLATE_TEST_CASE("backward scatters with the same weights that forward gathers with", "",
                   EACH_LINEAR) {
  // Forward is y = W x + fill, so for any c: (W x) . c = x . (W' c).
  const auto op = TestType::op(image);
  constexpr std::size_t count = 9;
  const auto x = testing::normal_values(count * image.size(), 1);
  const auto c = testing::normal_values(count * op.out().size(), 2);
  const std::vector<double> zeros(x.size());
  const auto run = testing::run_layer<ls::Reference<double>>(op, count, x, {}, c);
  const auto fill = testing::run_layer<ls::Reference<double>>(op, count, zeros, {}, c);
  CHECK(fill.dx == run.dx);
  std::vector<double> linear(run.y.size());
  for (std::size_t i = 0; i < linear.size(); ++i) linear[i] = run.y[i] - fill.y[i];
  const double left = product(linear, c), right = product(x, run.dx);
  CHECK(std::abs(left - right) < 1e-12 * (std::abs(left) + 1));
  CHECK(product(linear, linear) > 0);

  const auto narrow = testing::run_layer<ls::Reference<float>>(op, count, testing::as<float>(x), {},
                                                               testing::as<float>(c));
  CHECK(testing::relative_error(narrow.y, run.y) < 1e-6);
  CHECK(testing::relative_error(narrow.dx, run.dx) < 1e-6);
}

TEMPLATE_TEST_CASE("images are unchanged outside training", "", Translation, Wrapped, Rotation,
                   Filled, Flip, Cutout, Zoom, Stretch, Contrast, Brightness) {
  const auto x = testing::normal_values(3 * image.size(), 5);
  CHECK(forward<double>(TestType::op(image), x, {.training = false}) == x);
}

TEST_CASE("two factors are bounds in any order, a single one is symmetric") {
  CHECK(ls::factor(0.3, -0.2) == ls::FactorRange{-0.2f, 0.3f});
  CHECK(ls::RandomRotation<ls::factor(-0.2)>::op(image).factor == ls::FactorRange{-0.2f, 0.2f});
  CHECK(ls::RandomTranslation<ls::factor(0.1), ls::factor(0)>::op(image).columns ==
        ls::FactorRange{0, 0});
}

TEST_CASE("options are found in any order, with Keras' defaults") {
  using One = ls::RandomRotation<ls::factor(0.1), ls::nearest, ls::fill_constant(3)>;
  using Other = ls::RandomRotation<ls::factor(0.1), ls::fill_constant(3), ls::nearest>;
  CHECK(One::op(image) == Other::op(image));
  const auto op = Rotation::op(image);
  CHECK(op.fill == ls::fill_reflect);
  CHECK(op.interpolation == ls::bilinear);
  CHECK(Translation::op(image).fill == ls::fill_reflect);
  CHECK(Flip::op(image).mode == ls::horizontal_and_vertical);
  CHECK(Zoom::op(image).fill == ls::fill_reflect);
  CHECK(Zoom::op(image).keeps_aspect);
  CHECK_FALSE(Stretch::op(image).keeps_aspect);
  CHECK(ls::RandomContrast<ls::factor(0.5)>::op(image).range == ls::ValueRange{0, 255});
  CHECK(Contrast::op(image).factor == ls::FactorRange{0.5f, 0.5f});
  CHECK(Brightness::op(image).factor == ls::FactorRange{-0.5f, 0.5f});
}
