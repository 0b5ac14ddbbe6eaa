/// \file
/// Softmax and log-softmax test cases for every device. `Tested` comes from the device's
/// compare.hpp, which must be included first.
#pragma once

#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <cstddef>

#include "lockstep/layers/activations/softmax.hpp"
#include "support/kernel_numbers.hpp"

using namespace lockstep;
using namespace testing;

TEMPLATE_TEST_CASE("softmax and log-softmax agree with the reference on generated shapes", "",
                   Softmax, LogSoftmax) {
  Philox g(7);
  for (int i = 0; i < Tested::shapes; ++i) {
    const int classes = i == 0 ? 3000 : between(g, 2, 80);
    const auto op = TestType::op(
        one_of(g, 0, 1) == 0 ? shape(classes) : shape(between(g, 1, 5), between(g, 1, 5), classes));
    INFO(to_string(op.in));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 9));
    const double spread = one_of(g, 1, 10);
    const Numbers n = numbers(op, op.in.size(), 0, count, spread);
    Tested::check(op, count, n, norm(n.dy));
  }
}

TEST_CASE("the softmax of one class is 1, its log-softmax 0, and its gradient 0") {
  [[maybe_unused]] Tested::Machine machine;
  const Numbers n = numbers(Softmax::op(shape(1)), 1, 0, 20, 5);
  const auto value = run(Softmax::op(shape(1)), 20, n, Tested::device()),
             logarithm = run(LogSoftmax::op(shape(1)), 20, n, Tested::device());
  const auto is = [](float a, float b) { return std::abs(a - b) <= Tested::one_class_error; };
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(is(value.y[i], 1));
    CHECK(is(logarithm.y[i], 0));
    CHECK(is(value.dx[i], 0));
    CHECK(is(logarithm.dx[i], 0));
  }
}

TEST_CASE("softmax does not overflow with a large logit") {
  [[maybe_unused]] Tested::Machine machine;
  const auto op = Softmax::op(shape(3));
  const auto result = run(op, 1, Numbers{{1000, 999, -1000}, {}, {1, 0, 0}, {}}, Tested::device());
  CHECK(relative_error(result.y, std::vector<double>{0.7310585786, 0.2689414214, 0.0}) < tolerance);
}
