/// \file
/// Huber loss: quadratic near the target, linear far from it.
#pragma once

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/losses/elementwise_loss.hpp"

namespace lockstep {

/// One element of Huber, with e = p - t: e^2 / 2 where |e| <= delta, else delta |e| - delta^2 / 2.
/// Its derivative is e clipped to [-delta, delta].
struct HuberRule {
  double delta = 1;

  template <class T>
  LossTerm<T> operator()(T p, T t) const {
    const T d = static_cast<T>(delta), e = p - t, size = std::abs(e);
    if (size <= d) return {T(0.5) * e * e, e};
    return {d * (size - T(0.5) * d), e > 0 ? d : e < 0 ? -d : e};  // propagates NaN
  }
  bool operator==(const HuberRule&) const = default;
};

/// Keras' Huber (Huber, 1964): the mean over all elements of an example of e^2 / 2 where
/// |e| <= delta, else delta |e| - delta^2 / 2, with e = p - t. Targets have the shape of the
/// predictions.
/// \code
///   ls::Huber{.delta = 0.5}
/// \endcode
struct Huber {
  using target_type = float;
  static constexpr std::string_view name = "huber_loss";
  double delta = 1;

  /// \throws UsageError if delta is not positive and finite.
  void check() const {
    if (!(delta > 0) || !detail::is_finite(delta))
      throw UsageError("huber delta {}: must be above 0; 1 is usual", delta);
  }
  /// The options, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 1> numbers() const {
    return {{{"delta", delta}}};
  }
  static constexpr bool accepts(Shape) { return true; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr ElementwiseLossOp<HuberRule> op(Shape out) const {
    return {out.size(), {delta}, positions(out).size()};
  }
};

}  // namespace lockstep
