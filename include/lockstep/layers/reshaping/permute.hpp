/// \file
/// Axes in another order.
#pragma once

#include <cstddef>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/reshaping/rearrangement.hpp"

namespace lockstep {

/// y[i_1, .., i_m] = x[j_1, .., j_m], where j of axis dims[k] is i_k: axis k of y is axis dims[k]
/// of x.
struct PermuteOp {
  static constexpr std::string_view members = "in dims";
  Shape in;
  Shape dims;  // one axis of x, from 1, per axis of y
  constexpr Shape out() const {
    Shape result = in;
    for (int k = 0; k < in.rank; ++k) result.extent[static_cast<std::size_t>(k)] = in[dims[k] - 1];
    return result;
  }
  constexpr Rearrangement rearrangement() const {
    std::array<RearrangedAxis, 4> axes;
    axes.fill({1, 1, 0, 0});
    for (int k = 0; k < in.rank; ++k) {
      const int from = dims[k] - 1;
      int stride = 1;
      for (int axis = from + 1; axis < in.rank; ++axis) stride *= in[axis];
      axes[static_cast<std::size_t>(k)] = {in[from], in[from], 0, stride};
    }
    return Rearrangement::of({axes[0], axes[1], axes[2], axes[3]});
  }
  bool operator==(const PermuteOp&) const = default;
};

namespace detail {

/// Whether each of the numbers 1 to their count is there once.
constexpr bool is_permutation(Shape dims) {
  for (int axis = 1; axis <= dims.rank; ++axis) {
    int times = 0;
    for (int k = 0; k < dims.rank; ++k) times += dims[k] == axis;
    if (times != 1) return false;
  }
  return dims.rank > 0;
}

template <int... Dims>
struct CheckPermute {
  static_assert(sizeof...(Dims) >= 1 && sizeof...(Dims) <= 4 &&
                    is_permutation({sizeof...(Dims), {Dims...}}),
                "lockstep::Permute: the axes must be the numbers from 1 on, each once; write "
                "Permute<2, 1> to exchange the two axes of the input");
};

}  // namespace detail

/// Keras' Permute: axis k of the output is axis Dims[k] of the input, counted from 1, since axis 0
/// is the batch. Input of any shape, output with the same extents in another order.
/// \code
///   Permute<2, 1>        // (steps, channels) to (channels, steps)
///   Permute<3, 1, 2>     // channels last to channels first
/// \endcode
template <int... Dims>
struct Permute {
  static constexpr std::string_view name = "permute";
  template <Shape In>
  struct Requires {
    static_assert(In.rank == sizeof...(Dims),
                  "lockstep::Permute: the input has another number of axes; name each axis but the "
                  "batch once");
  };
  static constexpr bool accepts(Shape in) { return in.rank == sizeof...(Dims); }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr PermuteOp op(Shape in) {
    constexpr Shape dims = shape(Dims...);
    return {in, detail::is_permutation(dims) ? dims : Shape{dims.rank, {1, 2, 3, 4, 1}}};
  }

  static_assert(sizeof(detail::CheckPermute<Dims...>) > 0);
};

static_assert(Layer<Permute<2, 1>> && Rearranges<PermuteOp> &&
              Permute<3, 1, 2>::op(shape(4, 5, 6)).out() == shape(6, 4, 5));

}  // namespace lockstep
