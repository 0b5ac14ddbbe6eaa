/// \file
/// Global average pooling: the mean over height and width.
#pragma once

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// y[n, k] = mean over r, c of x[n, r, c, k].
struct GlobalAveragePooling2DOp {
  Shape in;  // (height, width, channels)
  constexpr Shape out() const { return shape(in[2]); }
  bool operator==(const GlobalAveragePooling2DOp&) const = default;
};

/// Keras' GlobalAveragePooling2D. Input (h, w, c), output (c).
struct GlobalAveragePooling2D : ParameterlessLayer<GlobalAveragePooling2DOp> {
  static constexpr std::string_view name = "global_average_pooling2d";
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3,
        "lockstep::GlobalAveragePooling2D: the input does not have height, width and channels; put "
        "it before Flatten");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 3; }
};

static_assert(Layer<GlobalAveragePooling2D>);

}  // namespace lockstep
