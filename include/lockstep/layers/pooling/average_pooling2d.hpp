/// \file
/// Average pooling over height and width.
#pragma once

#include "lockstep/layers/pooling/pooling2d.hpp"

namespace lockstep {

/// y[n, r, c, k] = mean of x over the part of the window inside the image.
struct AveragePooling2DOp {
  static constexpr std::string_view members = "window";
  Pooling2DWindow window;
  constexpr Shape out() const { return window.out(); }
  bool operator==(const AveragePooling2DOp&) const = default;
};

/// Keras' AveragePooling2D, by default with pool size 2, strides equal to the pool size, and
/// ls::valid. Input (h, w, c), output (h', w', c).
template <auto Pool = 2, auto... Options>
struct AveragePooling2D : detail::Pooling2DLayer<AveragePooling2DOp, Pool, Options...> {
  static constexpr std::string_view name = "average_pooling2d";
};

static_assert(Layer<AveragePooling2D<3, same, strides(2)>>);

}  // namespace lockstep
