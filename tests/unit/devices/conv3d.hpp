/// \file
/// Conv3D test cases for every device. `Tested` comes from the device's compare.hpp, which must be
/// included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "support/volumes.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("convolutions of generated volumes agree with the reference") {
  Philox g(3);
  for (int i = 0; i < Tested::shapes; ++i) {
    const Conv3DOp op = generated_volume_convolution(g);
    INFO(describe(op));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 4));
    Tested::check(op, count, numbers(op, op.in.size(), op.weights(), count));
  }
}

TEST_CASE("a convolution of no volumes gives a weight gradient of zero") {
  [[maybe_unused]] Tested::Machine machine;
  for (const auto& op :
       {Conv3D<8, 3>::op(shape(3, 5, 4, 2)), Conv3D<8, 2, groups(2)>::op(shape(2, 3, 5, 4))}) {
    const auto result = run(op, 0, numbers(op, op.in.size(), op.weights(), 0), Tested::device());
    CHECK(result.dw == std::vector<float>(op.weights(), 0.0f));
  }
}
