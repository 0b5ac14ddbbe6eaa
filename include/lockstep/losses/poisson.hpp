/// \file
/// Poisson loss, for counts.
#pragma once

#include <cmath>
#include <string_view>

#include "lockstep/losses/elementwise_loss.hpp"

namespace lockstep {

/// One element of Poisson: p - t log(p + 1e-7). Its derivative is 1 - t / (p + 1e-7).
struct PoissonRule {
  template <class T>
  LossTerm<T> operator()(T p, T t) const {
    const T shifted = p + T(1e-7);
    return {p - t * std::log(shifted), 1 - t / shifted};
  }
  bool operator==(const PoissonRule&) const = default;
};

/// Keras' Poisson: the mean of p - t log(p + 1e-7) over all elements of an example. Predictions are
/// rates and must not be negative: end the model with Softplus or ReLU. Targets are counts, as real
/// values, and have the shape of the predictions.
/// \code
///   ls::Model model{Net{}, strategy, ls::Poisson{}, ls::SGD{}};
/// \endcode
struct Poisson {
  using target_type = float;
  static constexpr std::string_view name = "poisson";

  static constexpr bool accepts(Shape) { return true; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr ElementwiseLossOp<PoissonRule> op(Shape out) const {
    return {out.size(), {}, positions(out).size()};
  }
};

}  // namespace lockstep
