/// \file
/// Logarithm of the hyperbolic cosine of the difference.
#pragma once

#include <cmath>
#include <numbers>
#include <string_view>

#include "lockstep/losses/elementwise_loss.hpp"

namespace lockstep {

/// One element of LogCosh, with e = p - t: log(cosh(e)), computed as log(1 + 2 sinh(e / 2)^2) for
/// |e| < 1, which keeps the digits of small results, and without overflow as
/// |e| + log(1 + exp(-2 |e|)) - log 2 otherwise. Its derivative is tanh(e).
struct LogCoshRule {
  template <class T>
  LossTerm<T> operator()(T p, T t) const {
    const T e = p - t, size = std::abs(e);
    const T half = std::sinh(size < 1 ? e / 2 : T(0));
    return {size < 1 ? std::log1p(2 * half * half)
                     : size + std::log1p(std::exp(-2 * size)) - std::numbers::ln2_v<T>,
            std::tanh(e)};
  }
  bool operator==(const LogCoshRule&) const = default;
};

/// Keras' LogCosh: the mean of log(cosh(e)) over all elements of an example, e = p - t, which is
/// about e^2 / 2 for small e and |e| - log 2 for large e. Targets have the shape of the
/// predictions.
/// \code
///   ls::Model model{Net{}, strategy, ls::LogCosh{}, ls::SGD{}};
/// \endcode
struct LogCosh {
  using target_type = float;
  static constexpr std::string_view name = "log_cosh";

  static constexpr bool accepts(Shape) { return true; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr ElementwiseLossOp<LogCoshRule> op(Shape out) const {
    return {out.size(), {}, positions(out).size()};
  }
};

}  // namespace lockstep
