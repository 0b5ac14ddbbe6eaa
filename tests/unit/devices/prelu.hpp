/// \file
/// PReLU test cases for every device. `Tested` comes from the device's compare.hpp, which must be
/// included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "support/kernel_numbers.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("PReLU agrees with the reference whichever axes share a slope") {
  Philox g(71);
  for (const SharedAxes shared : {SharedAxes{}, shared_axes(1), shared_axes(2), shared_axes(3),
                                  shared_axes(1, 2), shared_axes(1, 3), shared_axes(1, 2, 3)}) {
    const PReLUOp op{shape(between(g, 1, 9), between(g, 1, 9), between(g, 1, 40)), shared};
    INFO(to_string(op.in) << ", alpha " << to_string(op.alpha()));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.in.size(), op.weights(), count));
  }
  for (const Shape in : {shape(1), shape(70), shape(3, 5), shape(2, 3, 2, 3)}) {
    const PReLUOp op{in, {}};
    Tested::check(op, 3, numbers(op, op.in.size(), op.weights(), 3));
  }
  // Many elements with one slope: the sums are divided.
  const PReLUOp large{shape(40, 50, 3), shared_axes(1, 2)};
  Tested::check(large, 5, numbers(large, large.in.size(), large.weights(), 5));
}

TEST_CASE("PReLU without examples gives a weight gradient of zero") {
  [[maybe_unused]] Tested::Machine machine;
  const auto op = PReLU<>::op(shape(4, 3));
  const auto result = run(op, 0, numbers(op, op.in.size(), op.weights(), 0), Tested::device());
  CHECK(result.dw == std::vector<float>(op.weights(), 0.0f));
}

TEST_CASE("PReLU in half precision agrees with the reference") {
  Tested::need_half();
  const PReLUOp op{shape(7, 5, 9), shared_axes(1, 2)};
  Tested::check_half(op, 3, numbers(op, op.in.size(), op.weights(), 3));
}

TEST_CASE("PReLU has Keras' gradient of 0 at 0") {
  [[maybe_unused]] Tested::Machine machine;
  const auto op = PReLU<>::op(shape(3));
  const Numbers n{{-2, 0, 3}, {0.5f, 0.5f, 0.5f}, {1, 1, 1}, {}};
  const auto result = run(op, 1, n, Tested::device());
  CHECK(result.y == std::vector<float>{-1, 0, 3});
  CHECK(result.dx == std::vector<float>{0.5f, 0, 1});
  CHECK(result.dw == std::vector<float>{-2, 0, 0});
}
