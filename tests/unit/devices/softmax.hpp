/// \file
/// Softmax and log-softmax test cases for every device. `Tested` comes from the device's
/// compare.hpp, which must be included first.
#pragma once

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

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

TEST_CASE("softmax and log-softmax are accurate for equal, near and distant logits") {
  [[maybe_unused]] Tested::Machine machine;
  for (const int classes : {2, 3, 10, 33})
    for (const float step : {0.0f, 1e-6f, 1e-3f, 0.3f, 3.0f, 20.0f, 1e4f, 1e30f}) {
      std::vector<float> x;
      for (int k = 0; k < classes; ++k)
        x.push_back(step * static_cast<float>((7 * k + 2) % classes));
      const std::vector<float> dy(x.size(), 1.0f);
      const auto value =
                     run(Softmax::op(shape(classes)), 1, Numbers{x, {}, dy, {}}, Tested::device()),
                 logarithm = run(LogSoftmax::op(shape(classes)), 1, Numbers{x, {}, dy, {}},
                                 Tested::device());
      long double sum = 0, most = 0;
      for (const float v : x) most = std::max(most, static_cast<long double>(v));
      for (const float v : x) sum += std::exp(static_cast<long double>(v) - most);
      for (std::size_t k = 0; k < x.size(); ++k) {
        const long double y = static_cast<long double>(x[k]) - most - std::log(sum),
                          p = std::exp(y);
        CAPTURE(classes, step, k, value.y[k], logarithm.y[k], static_cast<double>(y));
        CHECK(std::abs(static_cast<long double>(value.y[k]) - p) <= 2e-6L * p + 1e-37L);
        CHECK(std::abs(static_cast<long double>(logarithm.y[k]) - y) <=
              1e-6L * std::abs(y) + Tested::log_softmax_error);
      }
    }
}
