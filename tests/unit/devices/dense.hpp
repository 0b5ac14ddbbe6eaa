/// \file
/// Dense test cases for every device. `Tested` comes from the device's compare.hpp, which must be
/// included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "lockstep/layers/dense.hpp"
#include "support/kernel_numbers.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("dense layers of generated sizes agree with the reference") {
  Philox g(2);
  for (int i = 0; i < Tested::shapes; ++i) {
    const DenseOp op{between(g, 1, 150), between(g, 1, 150), one_of(g, 0, 1) == 0, leading_axes(g)};
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 9));
    INFO(op.inputs << " -> " << op.units << (op.bias ? ", bias, " : ", ") << op.rows() << " rows");
    Tested::check(op, count, numbers(op, op.in().size(), op.weights(), count));
  }
}

TEST_CASE("a dense layer without examples gives a weight gradient of zero") {
  [[maybe_unused]] Tested::Machine machine;
  const auto op = Dense<3>::op(shape(4));
  CHECK(run(op, 0, numbers(op, 4, 15, 0), Tested::device()).dw == std::vector<float>(15, 0.0f));
}
