/// \file
/// Random image layers: the GPU draws the same numbers as the reference.
#include "lockstep/layers/augmentation.hpp"

#include <catch2/catch_test_macros.hpp>
#include <initializer_list>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Runs `L` on images of shape `in`, in float and in bfloat16. `exact`: numbers are moved, not
/// computed; `gradient`: the GPU computes one.
template <class L>
void check_images(Shape in, bool training, bool exact, bool gradient = true) {
  const auto op = L::op(in);
  for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 11}) {
    INFO(L::name << " of " << to_string(in) << ", examples " << count << ", training " << training);
    const Numbers n = numbers(op, in.size(), 0, count);
    RunOptions<float> options;
    options.training = training;
    options.want_dx = gradient;
    options.first_ordinal = (1ull << 32) - 3;
    options.seed = 98765432109876543ull;
    RunOptions<double> wide;
    wide.training = training;
    wide.want_dx = gradient;
    wide.first_ordinal = options.first_ordinal;
    wide.seed = options.seed;
    const auto expected =
        run_layer<Reference<double>>(op, count, as<double>(n.x), {}, as<double>(n.dy), wide);
    const auto result = run_layer<Cuda>(op, count, n.x, {}, n.dy, options);
    if (exact) {
      CHECK(as<double>(result.y) == expected.y);
      CHECK(as<double>(result.dx) == expected.dx);
    } else {
      CHECK(relative_error(result.y, expected.y) < 1e-6);
      CHECK(relative_error(result.dx, expected.dx) < 1e-6);
    }
    if (training && count > 1) CHECK(as<float>(expected.y) != n.x);

    const auto x = rounded(n.x), dy = rounded(n.dy);
    const auto plain = run_layer<Reference<float>>(op, count, x, {}, dy, options);
    const auto narrow = run_layer<CudaBFloat16>(op, count, x, {}, dy, options);
    CHECK(relative_error(narrow.y, rounded(plain.y)) <= (exact ? 0 : 1e-3));
    CHECK(relative_error(narrow.dx, rounded(plain.dx)) <= (exact ? 0 : 1e-3));
  }
}

}  // namespace

TEST_CASE("flips and cutouts on the GPU equal the reference's") {
  TestGpu gpu;
  const Shape in = shape(6, 5, 3);
  check_images<RandomFlip<>>(in, true, true);
  check_images<RandomFlip<horizontal>>(in, true, true);
  check_images<RandomFlip<vertical>>(in, true, true);
  check_images<RandomFlip<>>(in, false, true);
  check_images<RandomCutout<4, fill_constant(0.5f)>>(in, true, true);
  check_images<RandomCutout<9>>(shape(33, 20, 1), true, true);
  check_images<RandomCutout<4>>(in, false, true);
}

TEST_CASE("crops on the GPU equal the reference's, drawn or resized") {
  TestGpu gpu;
  check_images<RandomCrop<5, 7>>(shape(9, 8, 3), true, true);
  check_images<RandomCrop<30, 30>>(shape(33, 34, 1), true, true);
  check_images<RandomCrop<5, 7>>(shape(9, 8, 3), false, false, false);
  check_images<RandomCrop<12, 4>>(shape(9, 8, 3), true, false, false);
  check_images<RandomCrop<9, 10>>(shape(4, 5, 2), true, false, false);
}

TEST_CASE("rotated and translated images on the GPU equal the reference's") {
  TestGpu gpu;
  const Shape in = shape(9, 7, 3);
  check_images<RandomRotation<factor(0.1)>>(in, true, false, false);
  check_images<RandomRotation<factor(1), fill_wrap>>(in, true, false, false);
  check_images<RandomRotation<factor(0.2, 0.7), fill_constant(2), nearest>>(in, true, false, false);
  check_images<RandomTranslation<factor(0.9), factor(-1, 0.5)>>(in, true, false, false);
  check_images<RandomTranslation<factor(0.5), factor(0.5), fill_nearest>>(in, true, false, false);
  check_images<RandomTranslation<factor(0.5), factor(0.5), fill_constant(1), nearest>>(
      in, true, false, false);
  check_images<RandomRotation<factor(0.1)>>(in, false, true, false);
}

TEST_CASE(
    "the plan knows that rotated, translated and resized images have no gradient on the GPU") {
  const auto has_dx = []<class L>(Shape in) {
    return Kernel<std::remove_cvref_t<decltype(L::op(in))>, Cuda>::has_dx(L::op(in));
  };
  STATIC_CHECK_FALSE(has_dx.operator()<RandomRotation<factor(0.1)>>(shape(9, 7, 3)));
  STATIC_CHECK_FALSE(
      has_dx.operator()<RandomTranslation<factor(0.5), factor(0.5)>>(shape(9, 7, 3)));
  STATIC_CHECK_FALSE(has_dx.operator()<RandomCrop<12, 4>>(shape(9, 8, 3)));
  STATIC_CHECK(has_dx.operator()<RandomCrop<6, 4>>(shape(9, 8, 3)));
}
