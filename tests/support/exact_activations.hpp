/// \file
/// Activations compared with long double over the whole range of float, from denormal to overflow:
/// values by relative error, slopes by absolute error. docs/house/layers.md states these bounds.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <numbers>
#include <utility>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "support/kernel_numbers.hpp"

namespace testing {

/// Value and slope of an activation.
template <class Layer>
std::pair<long double, long double> exact(long double x) {
  using namespace lockstep;
  const long double e = std::exp(x);
  if constexpr (std::same_as<Layer, ReLU>)
    return {x > 0 ? x : 0, x > 0};
  else if constexpr (std::same_as<Layer, ReLU6>)
    return {x > 6 ? 6 : x > 0 ? x : 0, x > 0 && x < 6};
  else if constexpr (std::same_as<Layer, LeakyReLU<>>)
    return {x > 0 ? x : x * static_cast<long double>(0.3f),
            x > 0 ? 1 : static_cast<long double>(0.3f)};
  else if constexpr (std::same_as<Layer, ELU>)
    return {x > 0 ? x : std::expm1(x), x > 0 ? 1 : e};
  else if constexpr (std::same_as<Layer, Sigmoid>)
    return {1 / (1 + std::exp(-x)), 1 / (1 + std::exp(-x)) / (1 + e)};
  else if constexpr (std::same_as<Layer, Tanh>)
    return {std::tanh(x), std::pow(std::cosh(x > 5000 ? 5000 : x < -5000 ? -5000 : x), -2.0L)};
  else if constexpr (std::same_as<Layer, Softplus>)
    return {(x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(x))), 1 / (1 + std::exp(-x))};
  else if constexpr (std::same_as<Layer, SiLU>) {
    const long double s = 1 / (1 + std::exp(-x)), rest = 1 / (1 + e);
    return {x * s, s + (rest == 0 ? 0 : x * s * rest)};
  } else {
    static_assert(std::same_as<Layer, GELU>);
    const long double below = std::erfc(-x / std::sqrt(2.0L)) / 2;
    const long double density =
        std::abs(x) > 1e3L ? 0
                           : std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<long double>);
    return {x * below, below + x * density};
  }
}

/// Bounds for an activation on one device. Results below `floor` may be 0.
struct ActivationBounds {
  double value, slope, floor;
};

/// `sparse`: about one number in ten.
inline std::vector<float> whole_range(bool sparse) {
  std::vector<float> x{0};
  for (double size = 1e-44; size < 3e38; size *= sparse ? 1.7 : 1.09)
    for (const double sign : {1, -1}) x.push_back(static_cast<float>(sign * size));
  for (double v = -110; v < 110; v += sparse ? 1.3 : 0.13) x.push_back(static_cast<float>(v));
  return x;
}

template <class Layer, class D>
void is_exact(const ActivationBounds& bounds, const D& device = {}, bool sparse = false) {
  Numbers n{whole_range(sparse), {}, {}, {}};
  if constexpr (!std::same_as<lockstep::ActivationOf<D>, typename D::real>)
    n.x = rounded<lockstep::ActivationOf<D>>(n.x);
  n.dy.assign(n.x.size(), 1.0f);
  const auto result = run(Layer::op(lockstep::shape(static_cast<int>(n.x.size()))), 1, n, device);
  for (std::size_t i = 0; i < n.x.size(); ++i) {
    const double x = static_cast<double>(n.x[i]);
    const auto [y, slope] = exact<Layer>(static_cast<long double>(n.x[i]));
    const double y_error = static_cast<double>(std::abs(static_cast<long double>(result.y[i]) - y)),
                 y_bound = bounds.value * static_cast<double>(std::abs(y)) + bounds.floor,
                 slope_error =
                     static_cast<double>(std::abs(static_cast<long double>(result.dx[i]) - slope));
    // At a kink, a y that was flushed to zero does not give the slope.
    const bool flushed = x != 0 && std::abs(x) < bounds.floor;
    if (y_error <= y_bound && (flushed || slope_error <= bounds.slope)) continue;
    CAPTURE(n.x[i], result.y[i], static_cast<double>(y), result.dx[i], static_cast<double>(slope));
    CHECK(y_error <= y_bound);
    CHECK(slope_error <= bounds.slope);
  }
}

}  // namespace testing
