/// \file
/// Functions as layers, in double: values and gradients equal formulas that are written by hand.
#include "lockstep/layers/function.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/function.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Numbers = std::vector<double>;
using Double = ls::Reference<double>;

/// y and dx of a layer, for rows of n elements.
template <class Layer>
testing::LayerResult<double> run(const Numbers& x, const Numbers& dy, int n = 1) {
  return testing::run_layer<Double>(Layer::op(ls::shape(n)), x.size() / static_cast<std::size_t>(n),
                                    x, {}, dy);
}

bool near(double a, double b, double scale = 1) {
  return std::abs(a - b) <= 1e-12 * std::max(std::abs(b), scale) ||
         (std::isnan(a) && std::isnan(b));
}

/// Whether y = value(x) and dx = dy slope(x), everywhere.
template <auto f, class Value, class Slope>
void is_elementwise(const Value& value, const Slope& slope) {
  Numbers x, dy;
  for (double v = -6; v <= 6; v += 0.109375) x.push_back(v), dy.push_back(1 + v / 8);
  const auto result = run<ls::Function<f>>(x, dy);
  for (std::size_t i = 0; i < x.size(); ++i) {
    INFO("x = " << x[i]);
    CHECK(near(result.y[i], value(x[i])));
    CHECK(near(result.dx[i], dy[i] * slope(x[i])));
  }
}

/// Whether a row's y and dx are those of another layer.
template <class Layer, class Other>
void same_rows() {
  const Numbers x = testing::normal_values(60, 1), dy = testing::normal_values(60, 2);
  const auto result = run<Layer>(x, dy, 12), expected = run<Other>(x, dy, 12);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(near(result.y[i], expected.y[i]));
    CHECK(near(result.dx[i], expected.dx[i]));
  }
}

constexpr auto gelu = [](auto x) { return 0.5 * x * erfc(x * (-std::numbers::sqrt2 / 2)); };
constexpr auto gelu_erf = [](auto x) { return 0.5 * x * (1 + erf(x / std::numbers::sqrt2)); };
constexpr auto silu = [](auto x) { return x * sigmoid(x); };
constexpr auto naive_silu = [](auto x) { return x / (1 + exp(-x)); };
constexpr auto mish = [](auto x) { return x * tanh(log(1 + exp(x))); };
constexpr auto elu = [](auto x) { return select(x > 0, x, exp(x) - 1); };
constexpr auto softsign = [](auto x) { return x / (1 + abs(x)); };
constexpr auto clipped = [](auto x) { return min(max(x, -1), 2); };
constexpr auto logistic = [](auto x) { return sigmoid(x); };
constexpr auto root = [](auto x) { return sqrt(1 + pow(x, 2)) + pow(x * x + 1, 0.25); };
constexpr auto polynomial = [](ls::Expression x) {
  ls::Expression sum;
  for (int k = 5; k >= 0; --k) sum = sum * x + k;
  return sum / -2.0f;
};

constexpr auto softmax = [](auto x) {
  const auto e = exp(x - max(x));
  return e / sum(e);
};
constexpr auto log_softmax = [](auto x) {
  const auto shifted = x - stop_gradient(max(x));
  return shifted - log(sum(exp(shifted)));
};
// --8<-- [start:rows]
/// Rows with mean 0 and variance 1.
constexpr auto normalized = [](auto x) {
  const auto centered = x - mean(x);
  return centered / sqrt(mean(square(centered)) + 1e-3);
};
// --8<-- [end:rows]
constexpr auto unit = [](auto x) { return x / sqrt(sum(x * x)); };
constexpr auto largest = [](auto x) { return max(x); };
constexpr auto guarded = [](auto x) { return select(x > 0, log(x), 0); };

struct Mish : ls::Function<mish> {
  static constexpr std::string_view name = "mish";
};

static_assert(ls::Layer<ls::Function<mish>> &&
              ls::Pointwise<ls::FunctionOp<decltype(ls::detail::ReadFunction<mish>::code())>>);
static_assert(decltype(ls::Function<logistic>::op({}))::from_y);
static_assert(!decltype(ls::Function<silu>::op({}))::from_y);

}  // namespace

TEST_CASE("functions of elements have the values and slopes of their formulas") {
  const auto phi = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); };
  const auto normal = [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; };
  is_elementwise<gelu>([&](double x) { return x * normal(x); },
                       [&](double x) { return normal(x) + x * phi(x); });
  is_elementwise<gelu_erf>([&](double x) { return x * normal(x); },
                           [&](double x) { return normal(x) + x * phi(x); });
  const auto logistic_of = [](double x) { return 1 / (1 + std::exp(-x)); };
  is_elementwise<silu>([&](double x) { return x * logistic_of(x); },
                       [&](double x) {
                         const double s = logistic_of(x);
                         return s * (1 + x * (1 - s));
                       });
  is_elementwise<logistic>(logistic_of, [&](double x) { return logistic_of(x) * logistic_of(-x); });
  is_elementwise<mish>([](double x) { return x * std::tanh(std::log1p(std::exp(x))); },
                       [&](double x) {
                         const double t = std::tanh(std::log1p(std::exp(x)));
                         return t + x * (1 - t * t) * logistic_of(x);
                       });
  is_elementwise<elu>([](double x) { return x > 0 ? x : std::expm1(x); },
                      [](double x) { return x > 0 ? 1 : std::exp(x); });
  is_elementwise<softsign>([](double x) { return x / (1 + std::abs(x)); },
                           [](double x) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); });
  is_elementwise<root>(
      [](double x) { return std::sqrt(1 + x * x) + std::pow(x * x + 1, 0.25); },
      [](double x) { return x / std::sqrt(1 + x * x) + 0.5 * x * std::pow(x * x + 1, -0.75); });
  is_elementwise<polynomial>(
      [](double x) { return -((((5 * x + 4) * x + 3) * x + 2) * x + 1) * x / 2; },
      [](double x) { return -((((25 * x + 16) * x + 9) * x + 4) * x + 1) / 2; });
}

TEST_CASE("of equal operands of max and min the first has the gradient, as in ls::Maximum") {
  const auto result = run<ls::Function<clipped>>({-2, -1, 0, 2, 3}, {1, 1, 1, 1, 1});
  CHECK(result.y == Numbers{-1, -1, 0, 2, 2});
  CHECK(result.dx == Numbers{0, 1, 1, 1, 0});
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(run<ls::Function<clipped>>({nan}, {1}).y[0]));
}

TEST_CASE("a branch that is not taken adds nothing to a gradient, even where it is infinite") {
  const auto result = run<ls::Function<guarded>>({-1, 0, 2}, {3, 3, 3});
  CHECK(result.y == Numbers{0, 0, std::log(2.0)});
  CHECK(result.dx == Numbers{0, 0, 1.5});
}

TEST_CASE("formulas as they are usually written do not overflow") {
  const auto silu_of = run<ls::Function<naive_silu>>({-1000, 1000}, {1, 1});
  CHECK(silu_of.y == Numbers{0, 1000});
  CHECK(silu_of.dx == Numbers{0, 1});
  const auto mish_of = run<ls::Function<mish>>({-1000, 1000}, {1, 1});
  CHECK(mish_of.y == Numbers{0, 1000});
  CHECK(mish_of.dx == Numbers{0, 1});
  const double gelu_of = run<ls::Function<gelu_erf>>({-10}, {1}).y[0];
  CHECK(near(gelu_of / (-5 * std::erfc(10 / std::numbers::sqrt2)), 1));
}

TEST_CASE("functions of rows equal the library's layers") {
  same_rows<ls::Function<softmax>, ls::Softmax>();
  same_rows<ls::Function<log_softmax>, ls::LogSoftmax>();
  const Numbers x = testing::normal_values(60, 1), dy = testing::normal_values(60, 2);
  const auto result = run<ls::Function<normalized>>(x, dy, 12);
  const auto unit_rows = run<ls::Function<unit>>(x, dy, 12);
  for (std::size_t row = 0; row < 60; row += 12) {
    const auto dot = [&](const Numbers& a, const Numbers& b) {
      return std::inner_product(a.begin() + static_cast<long>(row),
                                a.begin() + static_cast<long>(row) + 12,
                                b.begin() + static_cast<long>(row), 0.0);
    };
    const Numbers ones(60, 1);
    // dx = (dy - u (dy . u)) / |x|, and with n the normalized row (dy - mean(dy) - n mean(dy n)) /
    // deviation.
    const double size = std::sqrt(dot(x, x)), along = dot(dy, x) / size;
    const double mean = dot(x, ones) / 12,
                 deviation = std::sqrt(dot(x, x) / 12 - mean * mean + 1e-3);
    const double of_dy = dot(dy, ones) / 12, of_products = dot(dy, result.y) / 12;
    for (std::size_t i = row; i < row + 12; ++i) {
      CHECK(near(unit_rows.y[i], x[i] / size));
      CHECK(near(unit_rows.dx[i], (dy[i] - x[i] / size * along) / size));
      CHECK(near(result.y[i], (x[i] - mean) / deviation));
      CHECK(near(result.dx[i], (dy[i] - of_dy - result.y[i] * of_products) / deviation));
    }
  }
}

TEST_CASE("a maximum of a row has one value, and divides its gradient among equal elements") {
  using Layer = ls::Function<largest>;
  static_assert(Layer::op(ls::shape(5, 3)).out() == ls::shape(5, 1));
  const auto result = run<Layer>({1, 4, 4, -1, -2, -1.5}, {6, 2}, 3);
  CHECK(result.y == Numbers{4, -1});
  CHECK(result.dx == Numbers{0, 3, 3, 2, 0, 0});
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(run<Layer>({1, nan, 3}, {1}, 3).y[0]));
}

namespace {

/// A function of random operations: number `Seed` of many.
template <std::uint64_t Seed>
struct Random {
  constexpr ls::Expression operator()(ls::Expression x) const {
    std::uint64_t state = ls::mix(Seed, 1);
    const auto below = [&](std::uint64_t n) { return (state = ls::mix(state, 2)) % n; };
    ls::Expression values[12] = {x, 0.5 * x - 0.25};
    for (std::size_t i = 2; i < 12; ++i) {
      const ls::Expression a = values[below(i)], b = values[i - 1];
      switch (below(Seed % 2 == 0 ? 12 : 9)) {
        case 0:
          values[i] = a + b;
          break;
        case 1:
          values[i] = a - b * 0.5;
          break;
        case 2:
          values[i] = a * b;
          break;
        case 3:
          values[i] = a / (1 + b * b);
          break;
        case 4:
          values[i] = tanh(b) + a;
          break;
        case 5:
          values[i] = select(a < b, sigmoid(a), softplus(b) - 0.5);
          break;
        case 6:
          values[i] = max(a, b) * 0.75;
          break;
        case 7:
          values[i] = exp(-(b * b)) - erf(a);
          break;
        case 8:
          values[i] = log(1.5 + b * b) * a;
          break;
        case 9:
          values[i] = b - mean(a);
          break;
        case 10:
          values[i] = sum(tanh(a)) * b * 0.25;
          break;
        default:
          values[i] = sqrt(1 + mean(b * b)) + max(a) * b;
          break;
      }
    }
    return values[11] + x;
  }
  bool operator==(const Random&) const = default;
};

/// Whether dx is the central difference of sum(dy y).
template <class Layer>
void has_numeric_gradient() {
  const double h = 1e-5;
  Numbers x = testing::normal_values(10, 8);
  const Numbers dy = testing::normal_values(10, 9), dx = run<Layer>(x, dy, 5).dx;
  const auto loss = [&] {
    const Numbers y = run<Layer>(x, dy, 5).y;
    return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double middle = x[i];
    x[i] = middle + h;
    const double above = loss();
    x[i] = middle - h;
    const double slope = (above - loss()) / (2 * h);
    x[i] = middle;
    CHECK(std::abs(dx[i] - slope) <= 1e-7 * std::max(1.0, std::abs(slope)));
  }
}

template <std::size_t... Seeds>
void check_random(std::index_sequence<Seeds...>) {
  (
      [] {
        INFO("function " << Seeds);
        has_numeric_gradient<ls::Function<Random<Seeds>{}>>();
      }(),
      ...);
}

}  // namespace

TEST_CASE("random functions have the gradient of central differences") {
  check_random(std::make_index_sequence<8>{});
}

TEST_CASE("a function is a layer with a name of its own, and its formula is part of the model") {
  struct Net : ls::Sequential<ls::Input<4>, Mish, ls::Function<softmax>,
                              ls::Dense<3, ls::activation<ls::Function<silu>>>> {};
  const ls::Architecture a = ls::architecture<Net>();
  REQUIRE(a.layers.size() == 3);
  CHECK(a.layers[0].name == "mish");
  CHECK(a.layers[0].class_name == "Function");
  CHECK(std::get<std::string>(*a.layers[0].option("formula")) == "x * tanh(softplus(x))");
  CHECK(a.layers[1].name == "function");
  CHECK(std::get<std::string>(*a.layers[1].option("formula")) == "a = exp(x - max(x)); a / sum(a)");
  CHECK(std::get<std::string>(*a.layers[2].option("activation")) == "Function");
  CHECK(std::get<std::string>(*a.layers[2].option("activation_formula")) == "x * sigmoid(x)");
}
