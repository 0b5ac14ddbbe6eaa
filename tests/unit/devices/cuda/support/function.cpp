/// \file
/// The text of functions: each operation, layers along rows, and losses, compared with the reference.
#include "lockstep/devices/cuda/support/function.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

#include "lockstep/function.hpp"
#include "support/formulas.hpp"
#include "support/run_loss.hpp"
#include "unit/devices/cuda/compare.hpp"

namespace {

// With its namespace where a using-directive makes the name that of an activation.
constexpr auto all = [](auto x) {
  const auto a = exp(-abs(x)) + expm1(0.25 * x) - log(2 + x * x) * log1p(abs(x)) +
                 lockstep::functions::tanh(x);
  const auto b = lockstep::functions::sigmoid(x) * lockstep::functions::softplus(x) + erf(0.5 * x) -
                 0.5 * x * erfc(-x);
  const auto c = select(x < 0.5, sqrt(1 + x * x), pow(x * x + 1, 0.25)) / (1 + square(x));
  const auto d = select(x == 2, x, select(x <= -1, max(x, -2), min(x, 0.25)));
  return a + b - c + stop_gradient(x) * d;
};
constexpr auto largest = [](auto x) { return max(x) + sum(x) * 0.5; };

}  // namespace

using namespace lockstep;
using namespace testing;

namespace {

template <class Layer>
void check_layer(Shape in, std::size_t count) {
  const auto op = Layer::op(in);
  check_against_reference(op, count, numbers(op, in.size(), 0, count), 1e-2);
}
template <class Loss>
void check_loss(const Loss& loss, Shape out) {
  TestGpu gpu;
  const std::size_t size = 5 * out.size();
  const auto p = as<float>(normal_values(size, 3)), t = as<float>(normal_values(size, 4));
  const auto result = run_loss<Cuda>(loss.op(out), 5, p, t, 0.5);
  const auto expected =
      run_loss<Reference<double>>(loss.op(out), 5, as<double>(p), as<double>(t), 0.5);
  CHECK(std::abs(result.sum - expected.sum) < 1e-5 * std::abs(expected.sum));
  CHECK(relative_error(result.gradient, expected.gradient) < tolerance);
}

}  // namespace

TEST_CASE("the operations of functions agree with the reference") {
  check_layer<Function<all>>(shape(300), 3);
}

TEST_CASE("functions of rows agree with the reference") {
  for (const int n : {7, 40, 1100}) check_layer<Function<formulas::normalized>>(shape(2, n), 3);
  check_layer<Function<largest>>(shape(2, 40), 3);
}

TEST_CASE("losses by functions agree with the reference") {
  check_loss(Function<formulas::huber>{}, shape(3, 40));
  check_loss(Function<formulas::crossentropy>{}, shape(3, 40));
}
