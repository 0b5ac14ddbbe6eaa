/// \file
/// A block whose weights training leaves alone.
#pragma once

#include <utility>

#include "lockstep/model/sequential.hpp"

namespace lockstep {

/// Keras' `trainable = False`, as a part of the network: the weights of the block's layers are
/// parameters without gradient. They are not a part of the flat weights, so nothing is computed,
/// exchanged or kept for them: no gradient, no slot of the optimizer, no share of ls::Sharded or of a
/// parameter server. Backward ends where no weight before it trains.
///
/// BatchNormalization uses its moving statistics and does not change them; dropout and noise stay
/// active; regularizers of the block count for nothing. All three as in Keras.
///
/// Names are those of the network without ls::Frozen, and so are initial values: weights files and
/// the weights of a checkpoint fit both.
/// \code
///   weights   | dense/kernel | dense/bias |                          gradients, slots: the same
///   state     | batch_normalization/moving_mean | ... | backbone/conv2d/kernel | ...
/// \endcode
/// \code
///   struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Frozen<Backbone>, ls::Dense<10>> {};
///   static_assert(Net::trainable_count < Net::parameter_count);
/// \endcode
template <class Block>
struct Frozen : Sequential<Block> {
  template <class Walk>
  static constexpr detail::ValueId append(Walk& walk, detail::ValueId v) {
    if constexpr (requires { walk.frozen; }) {
      const bool outer = std::exchange(walk.frozen, true);
      const detail::ValueId out = walk.template add<Block>(v);
      walk.frozen = outer;
      return out;
    } else {
      return walk.template add<Block>(v);
    }
  }
};

}  // namespace lockstep
