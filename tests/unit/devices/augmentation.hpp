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
