/// \file
/// Conv2DTranspose test cases for every device. `Tested` comes from the device's compare.hpp, which
/// must be included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "support/convolutions.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("transposed convolutions of generated shapes agree with the reference") {
  Philox g(34);
  for (int i = 0; i < Tested::shapes; ++i) {
    const Conv2DTransposeOp op = generated_transposed(g);
    INFO("transposed: " << describe(op.convolution()));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.in.size(), weights_of(op), count));
  }
}

TEST_CASE("a transposed convolution without examples gives a weight gradient of zero") {
  [[maybe_unused]] Tested::Machine machine;
  const auto op = Conv2DTranspose<8, 3>::op(shape(5, 5, 2));
  const auto result = run(op, 0, numbers(op, op.in.size(), weights_of(op), 0), Tested::device());
  CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
}
