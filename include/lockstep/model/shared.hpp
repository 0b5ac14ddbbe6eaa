/// \file
/// Layers and blocks with several calls and one set of weights.
#pragma once

#include <cstdint>

#include "lockstep/core/fixed_string.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep {

/// A layer or block with a key. All that have the same key in a network are one layer, as a Keras
/// layer that is called several times: it has one set of weights and state, whose gradients are the
/// sums over all calls, and the name of its first place. All must have the same type, and inputs for
/// which the parameters have the same shapes. Dropout and other random layers draw different numbers
/// in each call; the running statistics of BatchNormalization are updated in each, in order.
/// \code
///   struct Tower : ls::Sequential<ls::Dense<64, ls::relu>, ls::Dense<32>> {};
///   struct Pair : ls::Graph<
///       ls::In<"left", 20>, ls::In<"right", 20>,
///       ls::Let<"a", ls::From<"left">, ls::Shared<"tower", Tower>>,
///       ls::Let<"b", ls::From<"right">, ls::Shared<"tower", Tower>>,
///       ls::Out<"match", ls::From<"a", "b">, ls::Dot<1, ls::normalize>>> {};
/// \endcode
template <FixedString Key, class Block>
struct Shared : Sequential<Block> {
  using layer = Block;
  static constexpr std::uint64_t key_hash = hash_name(Key.view());
  template <class Walk>
  static constexpr detail::ValueId append(Walk& walk, detail::ValueId v) {
    return walk.template share<Shared>(v);
  }
};

}  // namespace lockstep
