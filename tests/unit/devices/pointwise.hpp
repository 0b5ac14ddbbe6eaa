/// \file
/// Activation test cases for every device. `Tested` comes from the device's compare.hpp, which must
/// be included first.
#pragma once

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/cube.hpp"
#include "support/exact_activations.hpp"
#include "support/kernel_numbers.hpp"

namespace testing {

template <class Layer>
void agrees_also_far_from_zero() {
  lockstep::Philox g(6);
  for (int i = 0; i < Tested::shapes; ++i) {
    const auto op =
        Layer::op(lockstep::shape(between(g, 1, 9), between(g, 1, 9), between(g, 1, 20)));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    const double spread = one_of(g, 1, 10, 100, 1000) * 0.1;
    INFO(to_string(op.in) << ", numbers up to about " << 3 * spread);
    const Numbers n = numbers(op, op.in.size(), 0, count, spread);
    Tested::check(op, count, n, norm(n.dy));
  }
}

}  // namespace testing

using namespace lockstep;
using namespace testing;

TEMPLATE_TEST_CASE("activations of generated shapes agree with the reference, also far from zero",
                   "", ReLU, ReLU6, LeakyReLU<>, LeakyReLU<negative_slope(0.2f)>, ELU, GELU, SiLU,
                   Sigmoid, Tanh, Softplus) {
  agrees_also_far_from_zero<TestType>();
}

TEMPLATE_TEST_CASE("custom functions agree with the reference", "",
                   (Rescaling<factor(1 / 127.5), offset(-1)>), Cube) {
  agrees_also_far_from_zero<TestType>();
}

TEMPLATE_TEST_CASE("each activation is accurate within narrow ranges", "", ReLU, ReLU6, LeakyReLU<>,
                   ELU, GELU, SiLU, Sigmoid, Tanh, Softplus) {
  [[maybe_unused]] Tested::Machine machine;
  const auto op = TestType::op(shape(1000));
  for (const double centre : {-30.0, -12.0, -5.0, -1.0, -1e-3, 1e-3, 1.0, 5.0, 12.0, 30.0}) {
    INFO("around " << centre);
    Numbers n = numbers(op, 1000, 0, 1);
    for (float& x : n.x) x = static_cast<float>(centre * (1 + 0.05 * static_cast<double>(x)));
    const auto expected = run<Reference<double>>(op, 1, n);
    const auto result = run(op, 1, n, Tested::device());
    double y_error = 0, dx_error = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      y_error = std::max(y_error, std::abs(static_cast<double>(result.y[i]) - expected.y[i]));
      dx_error = std::max(dx_error, std::abs(static_cast<double>(result.dx[i]) - expected.dx[i]));
    }
    CHECK(y_error < Tested::activation_error * std::max(1.0, std::abs(centre)));
    CHECK(dx_error < Tested::slope_error);
  }
}

TEMPLATE_TEST_CASE("each activation is accurate from denormal numbers to overflow", "", ReLU, ReLU6,
                   LeakyReLU<>, ELU, GELU, SiLU, Sigmoid, Tanh, Softplus) {
  [[maybe_unused]] Tested::Machine machine;
  is_exact<TestType>({std::same_as<TestType, GELU> ? Tested::gelu_error : 1e-6, 1e-6, 2e-38},
                     Tested::device());
}

TEMPLATE_TEST_CASE("each activation in bfloat16 is accurate from denormal numbers to overflow", "",
                   ReLU, ReLU6, LeakyReLU<>, ELU, GELU, SiLU, Sigmoid, Tanh, Softplus) {
  Tested::need_half();
  [[maybe_unused]] Tested::Machine machine;
  is_exact<TestType>({half_tolerance, 2 * half_tolerance, 2e-38}, Tested::half());
}

TEST_CASE("the gradient of ReLU6 is zero at both ends") {
  [[maybe_unused]] Tested::Machine machine;
  const auto op = ReLU6::op(shape(4));
  const auto result = run(op, 1, Numbers{{0, 6, 3, 7}, {}, {1, 1, 1, 1}, {}}, Tested::device());
  CHECK(result.y == std::vector<float>{0, 6, 3, 6});
  CHECK(result.dx == std::vector<float>{0, 0, 1, 0});
}
