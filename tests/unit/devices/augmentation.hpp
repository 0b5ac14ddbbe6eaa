/// \file
/// Test cases of random image layers for every device, which all draw the same numbers. `Tested`
/// comes from the device's compare.hpp, which must be included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <initializer_list>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/kernel_numbers.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Runs `L` on images of shape `in`, in float and in bfloat16. `exact`: numbers are moved, not
/// computed; `gradient`: all devices compute one.
template <class L>
void check_images(Shape in, bool training, bool exact, bool gradient = true) {
  const auto op = L::op(in);
  for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 11}) {
    INFO(L::name << " of " << to_string(in) << ", examples " << count << ", training " << training);
    const Numbers n = numbers(op, in.size(), 0, count);
    const RunOptions<float> options{.training = training,
                                    .want_dx = gradient || Tested::has_all_gradients,
                                    .seed = 98765432109876543ull,
                                    .first_ordinal = (1ull << 32) - 3};
    const RunOptions<double> wide{.training = training,
                                  .want_dx = options.want_dx,
                                  .seed = options.seed,
                                  .first_ordinal = options.first_ordinal};
    const auto expected =
        run_layer<Reference<double>>(op, count, as<double>(n.x), {}, as<double>(n.dy), wide);
    const auto result =
        run_layer<Tested::Device>(op, count, n.x, {}, n.dy, options, Tested::device());
    CHECK(relative_error(result.y, expected.y) <= (exact ? 0 : 1e-6));
    CHECK(relative_error(result.dx, expected.dx) <= (exact ? 0 : 1e-6));
    if (training && count > 1) CHECK(as<float>(expected.y) != n.x);
    if (Tested::has_reference_kernels) {
      const auto same = run_layer<Reference<float>>(op, count, n.x, {}, n.dy, options);
      CHECK(result.y == same.y);
      CHECK(result.dx == same.dx);
    }
    if (!Tested::has_half()) continue;
    const auto x = rounded(n.x), dy = rounded(n.dy);
    const auto plain = run_layer<Reference<float>>(op, count, x, {}, dy, options);
    const auto narrow = run_layer<Tested::Half>(op, count, x, {}, dy, options, Tested::half());
    CHECK(relative_error(narrow.y, rounded(plain.y)) <= (exact ? 0 : 1e-3));
    CHECK(relative_error(narrow.dx, rounded(plain.dx)) <= (exact ? 0 : 1e-3));
  }
}

}  // namespace

TEST_CASE("flips and cutouts equal the reference's") {
  [[maybe_unused]] Tested::Machine machine;
  const Shape in = shape(6, 5, 3);
  check_images<RandomFlip<>>(in, true, true);
  check_images<RandomFlip<horizontal>>(in, true, true);
  check_images<RandomFlip<vertical>>(in, true, true);
  check_images<RandomFlip<>>(in, false, true);
  check_images<RandomCutout<4, fill_constant(0.5f)>>(in, true, true);
  check_images<RandomCutout<9>>(shape(33, 20, 1), true, true);
  check_images<RandomCutout<4>>(in, false, true);
}

TEST_CASE("crops equal the reference's, drawn or resized") {
  [[maybe_unused]] Tested::Machine machine;
  check_images<RandomCrop<5, 7>>(shape(9, 8, 3), true, true);
  check_images<RandomCrop<30, 30>>(shape(33, 34, 1), true, true);
  check_images<RandomCrop<5, 7>>(shape(9, 8, 3), false, false, false);
  check_images<RandomCrop<12, 4>>(shape(9, 8, 3), true, false, false);
  check_images<RandomCrop<12, 4>>(shape(9, 8, 3), false, false, false);
  check_images<RandomCrop<9, 10>>(shape(4, 5, 2), true, false, false);
}

TEST_CASE("zoomed images equal the reference's") {
  [[maybe_unused]] Tested::Machine machine;
  const Shape in = shape(9, 7, 3);
  check_images<RandomZoom<factor(0.7)>>(in, true, false, false);
  check_images<RandomZoom<factor(0.9), factor(-0.8, 0), fill_constant(2), nearest>>(in, true, false,
                                                                                    false);
  check_images<RandomZoom<factor(0.7)>>(in, false, true, false);
}

TEST_CASE("images of another contrast or brightness equal the reference's") {
  [[maybe_unused]] Tested::Machine machine;
  for (const Shape in : {shape(9, 7, 3), shape(1, 2, 1), shape(40, 30, 2), shape(3, 2, 70)}) {
    check_images<RandomContrast<factor(0.9), value_range(-9, 9)>>(in, true, false);
    check_images<RandomBrightness<factor(0.2), value_range(-20, 20)>>(in, true, false);
  }
  check_images<RandomContrast<factor(0.9)>>(shape(4, 3, 2), false, true);
  check_images<RandomBrightness<factor(0.9)>>(shape(4, 3, 2), false, true);
}

TEST_CASE("the range limits images of another contrast or brightness") {
  [[maybe_unused]] Tested::Machine machine;
  const auto run = [](const auto& op) {
    return run_layer<Tested::Device>(op, 1, {0, 1, 2, 5}, {}, {1, 2, 3, 4}, {}, Tested::device());
  };
  // Twice the distance from 2: -2, 0, 2, 8, of which two are within the range.
  const auto sharp = run(RandomContrastOp{shape(2, 2, 1), {-1, 1}, {-1, 4}});
  CHECK(sharp.y == std::vector<float>{-1, 0, 2, 4});
  CHECK(sharp.dx == std::vector<float>{-1.25f, 2.75f, 4.75f, -1.25f});  // 2 g - mean(g)
  // One pixel is its own mean.
  const auto one = run_layer<Tested::Device>(RandomContrastOp{shape(1, 1, 1), {-1, 1}, {-1, 4}}, 2,
                                             {3, 5}, {}, {7, 7}, {}, Tested::device());
  CHECK(one.y == std::vector<float>{3, 4});
  CHECK(one.dx == std::vector<float>{7, 0});
  const auto bright = run(RandomBrightnessOp{shape(2, 2, 1), {0.5f, 0.5f}, {0, 4}});
  CHECK(bright.y == std::vector<float>{2, 3, 4, 4});
  CHECK(bright.dx == std::vector<float>{1, 2, 3, 0});
}

TEST_CASE("rotated and translated images equal the reference's") {
  [[maybe_unused]] Tested::Machine machine;
  const Shape in = shape(9, 7, 3);
  check_images<RandomRotation<factor(0.1)>>(in, true, false, false);
  check_images<RandomRotation<factor(1), fill_wrap>>(in, true, false, false);
  check_images<RandomRotation<factor(0.2, 0.7), fill_constant(2), nearest>>(in, true, false, false);
  check_images<RandomTranslation<factor(0.9), factor(-1, 0.5)>>(in, true, false, false);
  check_images<RandomTranslation<factor(0.5), factor(0.5), fill_nearest>>(in, true, false, false);
  check_images<RandomTranslation<factor(0.5), factor(0.5), fill_constant(1), nearest>>(
      in, true, false, false);
  check_images<RandomRotation<factor(0.1)>>(in, false, true, false);
  check_images<RandomTranslation<factor(0.9), factor(-1, 0.5)>>(in, false, true, false);
}
