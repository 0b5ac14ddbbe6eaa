/// \file
/// A vector as steps.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/reshaping/rearrangement.hpp"

namespace lockstep {

/// y[s, k] = x[k] for each of n steps s.
struct RepeatVectorOp {
  static constexpr std::string_view members = "in n";
  Shape in;  // (channels)
  int n = 1;
  constexpr Shape out() const { return shape(n, in[0]); }
  constexpr Rearrangement rearrangement() const {
    return Rearrangement::of({{n, n, 0, 0}, {in[0], in[0], 0, 1}});
  }
  bool operator==(const RepeatVectorOp&) const = default;
};

namespace detail {
template <int N>
struct CheckRepeatVector {
  static_assert(N > 0,
                "lockstep::RepeatVector: the number of repetitions must be at least 1; write "
                "RepeatVector<3>");
};
}  // namespace detail

/// Keras' RepeatVector. Input (c), output (N, c).
/// \code
///   RepeatVector<10>     // from the code of an autoencoder to 10 steps
/// \endcode
template <int N>
struct RepeatVector {
  static constexpr std::string_view name = "repeat_vector";
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 1,
        "lockstep::RepeatVector: the input is not a vector; put Flatten or global pooling "
        "before it");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 1; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr RepeatVectorOp op(Shape in) { return {in, N > 0 ? N : 1}; }

  static_assert(sizeof(detail::CheckRepeatVector<N>) > 0);
};

static_assert(Layer<RepeatVector<3>> && Rearranges<RepeatVectorOp> &&
              RepeatVector<3>::op(shape(5)).out() == shape(3, 5));

}  // namespace lockstep
