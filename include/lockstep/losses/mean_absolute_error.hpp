/// \file
/// Mean of the absolute differences.
#pragma once

#include <cmath>
#include <string_view>

#include "lockstep/losses/elementwise_loss.hpp"

namespace lockstep {

/// One element of MeanAbsoluteError: |p - t|. Its derivative is the sign of p - t, 0 where p = t.
struct AbsoluteErrorRule {
  template <class T>
  LossTerm<T> operator()(T p, T t) const {
    const T e = p - t;
    return {std::abs(e), e > 0 ? T(1) : e < 0 ? T(-1) : e == 0 ? T(0) : e};  // propagates NaN
  }
  bool operator==(const AbsoluteErrorRule&) const = default;
};

/// Keras' MeanAbsoluteError: the mean of |p - t| over all elements of an example. Targets have the
/// shape of the predictions.
/// \code
///   ls::Model model{Net{}, strategy, ls::MeanAbsoluteError{}, ls::SGD{}};
/// \endcode
struct MeanAbsoluteError {
  using target_type = float;
  static constexpr std::string_view name = "mean_absolute_error";

  static constexpr bool accepts(Shape) { return true; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr ElementwiseLossOp<AbsoluteErrorRule> op(Shape out) const {
    return {out.size(), {}, positions(out).size()};
  }
};

}  // namespace lockstep
