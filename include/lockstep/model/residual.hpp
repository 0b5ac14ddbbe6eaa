/// \file
/// Residual connections: the sum of two branches over the same input.
#pragma once

#include "lockstep/layers/merging/add.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep {

/// y = Main(x) + Skip(x); He et al., 2015. Both branches must have the same output shape.
/// \code
///   template <int F, int S>
///   struct First : ls::Sequential<ls::Residual<Main<F, S>, Project<F, S>>, ls::ReLU> {};
/// \endcode
template <class Main, class Skip = Identity>
struct Residual {
  using is_composite = void;
  using children = List<Main, Skip, Add>;
  using ops = detail::Union<typename detail::OpsOf<Main>::type, typename detail::OpsOf<Skip>::type,
                            List<AddOp>>;
  static constexpr bool layers_ok = detail::layer_ok<Main>() && detail::layer_ok<Skip>();
  template <class Walk>
  static constexpr detail::ValueId append(Walk& walk, detail::ValueId v) {
    const detail::ValueId main = walk.template add<Main>(v), skip = walk.template add<Skip>(v);
    return walk.template add_layer<Add>(detail::Failure::branches_differ, main, skip);
  }

  static_assert(sizeof(detail::CheckLayer<Main>) + sizeof(detail::CheckLayer<Skip>) > 0);
};

}  // namespace lockstep
