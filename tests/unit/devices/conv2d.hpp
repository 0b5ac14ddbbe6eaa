/// \file
/// Conv2D test cases for every device. `Tested` comes from the device's compare.hpp, which must be
/// included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "support/convolutions.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("convolutions of generated shapes agree with the reference") {
  Philox g(1);
  for (int i = 0; i < Tested::shapes; ++i) {
    const Conv2DOp op = generated_convolution(g);
    INFO(describe(op));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.in.size(), weights_of(op), count));
  }
}

TEST_CASE("grouped convolutions of generated shapes agree with the reference") {
  Philox g(61);
  for (int i = 0; i < Tested::shapes; ++i) {
    const Conv2DOp op = generated_grouped(g);
    INFO(describe(op));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.in.size(), weights_of(op), count));
  }
}

TEST_CASE("a convolution without examples gives a weight gradient of zero") {
  [[maybe_unused]] Tested::Machine machine;
  for (const auto& op :
       {Conv2D<8, 3>::op(shape(5, 5, 2)), Conv2D<8, 3, groups(2)>::op(shape(5, 5, 4))}) {
    const auto result = run(op, 0, numbers(op, op.in.size(), weights_of(op), 0), Tested::device());
    CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
  }
}
