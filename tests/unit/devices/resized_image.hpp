/// \file
/// Resizing and CenterCrop test cases for every device. `Tested` comes from the device's
/// compare.hpp, which must be included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "lockstep/layers/preprocessing/center_crop.hpp"
#include "lockstep/layers/preprocessing/resizing.hpp"
#include "support/kernel_numbers.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("resizing to generated shapes agrees with the reference") {
  Philox g(81);
  for (int i = 0; i < 2 * Tested::shapes; ++i) {
    const ResizingOp op{shape(between(g, 1, 20), between(g, 1, 20), between(g, 1, 9)),
                        between(g, 1, 30), between(g, 1, 30), i % 2 == 0 ? nearest : bilinear};
    INFO(to_string(op.in) << " to " << to_string(op.out())
                          << (op.interpolation == bilinear ? ", bilinear" : ""));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.in.size(), 0, count));
  }
}

TEST_CASE("center crops of generated shapes agree with the reference") {
  Philox g(82);
  for (int i = 0; i < Tested::shapes; ++i) {
    const CenterCropOp op{shape(between(g, 1, 12), between(g, 1, 12), between(g, 1, 4)),
                          between(g, 1, 12), between(g, 1, 12)};
    INFO(to_string(op.in) << " to " << to_string(op.out()));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.in.size(), 0, count));
  }
}

TEST_CASE("resizing in half precision agrees with the reference") {
  Tested::need_half();
  for (const Interpolation how : {nearest, bilinear}) {
    const ResizingOp op{shape(7, 5, 3), 9, 4, how};
    Tested::check_half(op, 3, numbers(op, op.in.size(), 0, 3));
  }
}

TEST_CASE("resizing reads the pixels at the centers of the result's") {
  [[maybe_unused]] Tested::Machine machine;
  const auto resized = [](const ResizingOp& op, const std::vector<float>& x) {
    return run(op, 1, Numbers{x, {}, std::vector<float>(op.out().size(), 1), {}}, Tested::device())
        .y;
  };
  CHECK(resized({shape(1, 4, 1), 1, 2, bilinear}, {0, 8, 16, 32}) == std::vector<float>{4, 24});
  CHECK(resized({shape(2, 1, 1), 4, 1, bilinear}, {0, 8}) == std::vector<float>{0, 2, 6, 8});
  // Centers 2/3, 2, 10/3 of pixels [0, 1), [1, 2), ...: 2 belongs to the third.
  CHECK(resized({shape(1, 4, 1), 1, 3, nearest}, {1, 2, 3, 4}) == std::vector<float>{1, 3, 4});
  CHECK(resized({shape(1, 1, 2), 2, 1, nearest}, {5, 6}) == std::vector<float>{5, 6, 5, 6});
}

TEST_CASE("a center crop moves pixels, and its gradient is 0 around them") {
  [[maybe_unused]] Tested::Machine machine;
  const auto op = CenterCrop<1, 2>::op(shape(2, 5, 1));
  const auto result =
      run(op, 1, Numbers{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {}, {10, 20}, {}}, Tested::device());
  CHECK(result.y == std::vector<float>{1, 2});
  CHECK(result.dx == std::vector<float>{0, 10, 20, 0, 0, 0, 0, 0, 0, 0});
}
