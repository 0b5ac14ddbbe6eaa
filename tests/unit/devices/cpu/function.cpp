/// \file
/// Functions on the Cpu: each of the vectors' functions from denormal numbers to overflow, and rows of
/// all lengths.
#include "lockstep/devices/cpu/function.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "compare.hpp"
#include "lockstep/function.hpp"
#include "lockstep/layers/layers.hpp"
#include "support/formulas.hpp"
#include "support/run_loss.hpp"

namespace {

// With its namespace where a using-directive makes the name that of an activation.
constexpr auto exp_of = [](auto x) { return exp(x); };
constexpr auto expm1_of = [](auto x) { return expm1(x); };
constexpr auto log_of = [](auto x) { return log(x); };
constexpr auto log1p_of = [](auto x) { return log1p(x); };
constexpr auto tanh_of = [](auto x) { return lockstep::functions::tanh(x); };
constexpr auto sigmoid_of = [](auto x) { return lockstep::functions::sigmoid(x); };
constexpr auto softplus_of = [](auto x) { return lockstep::functions::softplus(x); };
constexpr auto erf_of = [](auto x) { return erf(x); };
constexpr auto erfc_of = [](auto x) { return erfc(x); };
constexpr auto sqrt_of = [](auto x) { return sqrt(x); };
constexpr auto power_of = [](auto x) { return pow(x, 0.3); };

constexpr auto largest = [](auto x) { return max(x) + sum(x); };

}  // namespace

using namespace lockstep;
using namespace testing;

namespace {

/// From the smallest denormal number to infinity, of both signs, and NaN.
std::vector<float> all_sizes() {
  std::vector<float> x{0.0f, std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (float v = 1e-45f; v < 3e38f;
       v = std::nextafter(v * 1.13f, std::numeric_limits<float>::infinity()))
    x.push_back(v);
  const std::size_t n = x.size();
  for (std::size_t i = 0; i < n; ++i) x.push_back(-x[i]);
  return x;
}

/// Whether f of the Cpu is within `tolerance` of the exact value, relative or below 2e-38.
template <auto f>
void is_accurate(double tolerance, double (*exact)(double)) {
  const std::vector<float> x = all_sizes();
  const auto op = Function<f>::op(shape(static_cast<int>(x.size())));
  const auto y = run_layer<Cpu>(op, 1, x, {}, std::vector<float>(x.size(), 1)).y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(static_cast<double>(x[i])), got = static_cast<double>(y[i]);
    if (static_cast<double>(static_cast<float>(expected)) == got) continue;  // also infinite
    if (std::isnan(expected) && std::isnan(got)) continue;
    INFO("x = " << x[i] << ", y = " << got << " instead of " << expected);
    CHECK(std::abs(got - expected) <= tolerance * std::abs(expected) + 2e-38);
  }
}

}  // namespace

TEST_CASE("the functions of vectors are accurate from denormal numbers to overflow") {
  is_accurate<exp_of>(1e-6, [](double x) { return std::exp(x); });
  is_accurate<expm1_of>(1e-6, [](double x) { return std::expm1(x); });
  is_accurate<log_of>(1e-6, [](double x) { return std::log(x); });
  is_accurate<log1p_of>(1e-6, [](double x) { return std::log1p(x); });
  is_accurate<tanh_of>(1e-6, [](double x) { return std::tanh(x); });
  is_accurate<sigmoid_of>(1e-6, [](double x) { return 1 / (1 + std::exp(-x)); });
  is_accurate<softplus_of>(
      1e-6, [](double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::abs(x))); });
  is_accurate<erf_of>(1e-6, [](double x) { return std::erf(x); });
  is_accurate<erfc_of>(3e-5, [](double x) { return std::erfc(x); });  // x^2 magnifies rounding
  is_accurate<sqrt_of>(1e-7, [](double x) { return std::sqrt(x); });
  is_accurate<power_of>(1e-6, [](double x) { return std::pow(x, static_cast<double>(0.3f)); });
}

TEST_CASE("functions of rows agree with the reference for all lengths") {
  for (const int n : {1, 3, 8, 15, 16, 17, 100}) {
    INFO("rows of " << n);
    for (const std::size_t count : {std::size_t{1}, std::size_t{9}}) {
      const auto op = Function<formulas::normalized>::op(shape(2, n));
      check_against_reference(op, count, numbers(op, op.in.size(), 0, count), true, 1e-2);
      const auto of_row = Function<largest>::op(shape(2, n));
      check_against_reference(of_row, count, numbers(of_row, of_row.in.size(), 0, count), true,
                              1e-2);
    }
  }
  const auto op = Function<formulas::normalized>::op(shape(3, 40));
  check_in_bfloat16(op, 5, numbers(op, op.in.size(), 0, 5), 0, 0, 2 * half_tolerance);
}

namespace {

template <class Loss>
void agrees_with_reference(const Loss& loss, Shape out) {
  const std::size_t size = 3 * out.size();
  const auto p = as<float>(normal_values(size, 3)), t = as<float>(normal_values(size, 4));
  for (const std::size_t weights : {std::size_t{0}, std::size_t{1}, positions_of(out).size()}) {
    const auto w = as<float>(normal_values(3 * weights, 5));
    const auto result = run_loss<Cpu>(loss.op(out), 3, p, t, 0.5, {}, w);
    const auto expected = run_loss<Reference<double>>(loss.op(out), 3, as<double>(p), as<double>(t),
                                                      0.5, {}, as<double>(w));
    CHECK(std::abs(result.sum - expected.sum) < 1e-5);
    CHECK(relative_error(result.gradient, expected.gradient) < 1e-5);
  }
}

}  // namespace

TEST_CASE("losses by functions agree with the reference for all lengths, with weights") {
  for (const int n : {1, 7, 16, 33}) {
    INFO("rows of " << n);
    agrees_with_reference(Function<formulas::huber>{}, shape(n));
    agrees_with_reference(Function<formulas::huber>{}, shape(2, n));
    agrees_with_reference(Function<formulas::crossentropy>{}, shape(2, n));
  }
}

TEST_CASE("a NaN in a row is found by its maximum") {
  const auto op = Function<largest>::op(shape(20));
  std::vector<float> x(20, 1.0f);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(run_layer<Cpu>(op, 1, x, {}, std::vector<float>{1}).y[0]));
}
