/// \file
/// DepthwiseConv2D test cases for every device. `Tested` comes from the device's compare.hpp, which
/// must be included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "support/convolutions.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("depthwise convolutions of generated shapes agree with the reference") {
  Philox g(31);
  for (int i = 0; i < Tested::shapes; ++i) {
    const Conv2DOp like = generated_convolution(g);
    const DepthwiseConv2DOp op = depthwise(like, one_of(g, 1, 1, 1, 2, 3));
    INFO("depthwise, multiplier " << op.multiplier << ": " << describe(like));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.in.size(), weights_of(op), count));
  }
}

TEST_CASE("a depthwise convolution without examples gives a weight gradient of zero") {
  [[maybe_unused]] Tested::Machine machine;
  for (const int multiplier : {1, 2}) {
    const DepthwiseConv2DOp op{shape(5, 5, 4), multiplier, {3, 3}, {1, 1}, {1, 1}, valid, true};
    const auto result = run(op, 0, numbers(op, op.in.size(), weights_of(op), 0), Tested::device());
    CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
  }
}
