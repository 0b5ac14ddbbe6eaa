/// \file
/// A block repeated N times, each time with separate parameters.
#pragma once

#include "lockstep/model/sequential.hpp"

namespace lockstep {

namespace detail {
template <int N>
struct CheckRepeat {
  static_assert(N >= 0,
                "lockstep::Repeat: the count must be at least 0; write Repeat<count, Block>");
};
}  // namespace detail

/// `Repeat<8, Next<16>>`: a compile-time loop that compiles as fast as one block. The block's
/// output must have the shape of its input.
template <int N, class Block>
struct Repeat : Sequential<Block> {
  template <class Walk>
  static constexpr detail::ValueId append(Walk& walk, detail::ValueId v) {
    const int position = walk.position;
    for (int i = 0; i < N; ++i) {
      walk.position = position;  // an error is at the same leaf in every repetition
      const detail::ValueId out = walk.template add<Block>(v);
      walk.keeps_shape(v, out);
      v = out;
    }
    return v;
  }

  static_assert(sizeof(detail::CheckRepeat<N>) > 0);
};

}  // namespace lockstep
