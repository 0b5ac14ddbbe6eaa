/// \file
/// Hinge loss, for classifiers with a margin.
#pragma once

#include <string_view>

#include "lockstep/losses/elementwise_loss.hpp"

namespace lockstep {

/// max(1 - t p, 0), a target of 0 taken as -1; its derivative is -t where 1 - t p >= 0.
struct HingeRule {
  template <class T>
  LossTerm<T> operator()(T p, T t) const {
    const T sign = t == 0 ? T(-1) : t, margin = 1 - sign * p;
    return {margin < 0 ? T(0) : margin, margin < 0 ? T(0) : -sign};
  }
  bool operator==(const HingeRule&) const = default;
};

/// Keras' Hinge: the mean of max(1 - t p, 0) over all elements of an example. Targets are -1 and 1,
/// or 0 and 1, and have the shape of the predictions. (Keras takes a 0 as -1 only in a batch of
/// nothing but 0 and 1; here a target's meaning does not depend on its neighbours.)
/// \code
///   ls::Model model{Net{}, strategy, ls::Hinge{}, ls::SGD{}};
/// \endcode
struct Hinge {
  using target_type = float;
  static constexpr std::string_view name = "hinge";

  static constexpr bool accepts(Shape) { return true; }
  static constexpr Shape target_shape(Shape out) { return out; }
  constexpr ElementwiseLossOp<HingeRule> op(Shape out) const { return {out.size(), {}}; }
};

}  // namespace lockstep
