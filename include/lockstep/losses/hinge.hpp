/// \file
/// Hinge loss, for maximum-margin classifiers.
#pragma once

#include <string_view>

#include "lockstep/losses/elementwise_loss.hpp"

namespace lockstep {

/// One element of Hinge: max(1 - t p, 0), where a target of 0 counts as -1. Its derivative is -t
/// where 1 - t p >= 0, else 0.
struct HingeRule {
  template <class T>
  LossTerm<T> operator()(T p, T t) const {
    const T sign = t == 0 ? T(-1) : t, margin = 1 - sign * p;
    return {margin < 0 ? T(0) : margin, margin < 0 ? T(0) : margin >= 0 ? -sign : margin};
  }
  bool operator==(const HingeRule&) const = default;
};

/// Keras' Hinge: the mean of max(1 - t p, 0) over all elements of an example. Targets are -1 and 1,
/// or 0 and 1, and have the shape of the predictions. Unlike Keras, which converts 0 to -1 only if
/// the whole batch consists of 0 and 1, this does not depend on the other targets.
/// \code
///   ls::Model model{Net{}, strategy, ls::Hinge{}, ls::SGD{}};
/// \endcode
struct Hinge {
  using target_type = float;
  static constexpr std::string_view name = "hinge";

  static constexpr bool accepts(Shape) { return true; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr ElementwiseLossOp<HingeRule> op(Shape out) const {
    return {out.size(), {}, positions(out).size()};
  }
};

}  // namespace lockstep
