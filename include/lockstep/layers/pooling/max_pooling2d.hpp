/// \file
/// Max pooling over height and width. Invariant: among equal maxima, the first in row-major order
/// wins and receives the gradient.
#pragma once

#include "lockstep/layers/pooling/pooling2d.hpp"

namespace lockstep {

/// y[n, r, c, k] = max of x over the window; padding never wins.
struct MaxPooling2DOp {
  static constexpr std::string_view members = "window";
  Pooling2DWindow window;
  constexpr Shape out() const { return window.out(); }
  bool operator==(const MaxPooling2DOp&) const = default;
};

/// Keras' MaxPooling2D, by default with pool size 2, strides equal to the pool size, and ls::valid.
/// Input (h, w, c), output (h', w', c).
/// \code
///   MaxPooling2D<>, MaxPooling2D<3, ls::strides(2), ls::same>
/// \endcode
template <auto Pool = 2, auto... Options>
struct MaxPooling2D : detail::Pooling2DLayer<MaxPooling2DOp, Pool, Options...> {
  static constexpr std::string_view name = "max_pooling2d";
};

static_assert(Layer<MaxPooling2D<>> &&
              MaxPooling2D<>::op(shape(26, 26, 32)).out() == shape(13, 13, 32));

}  // namespace lockstep
