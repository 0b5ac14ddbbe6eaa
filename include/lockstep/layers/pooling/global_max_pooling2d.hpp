/// \file
/// Global max pooling: the maximum over height and width. Invariants: equal maxima share the
/// gradient, as in TensorFlow, which implements it as a reduction; NaN stays NaN.
#pragma once

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// y[n, k] = max over r, c of x[n, r, c, k].
struct GlobalMaxPooling2DOp {
  Shape in;  // (height, width, channels)
  constexpr Shape out() const { return shape(in[2]); }
  bool operator==(const GlobalMaxPooling2DOp&) const = default;
};

/// Keras' GlobalMaxPooling2D. Input (h, w, c), output (c).
struct GlobalMaxPooling2D : ParameterlessLayer<GlobalMaxPooling2DOp> {
  static constexpr std::string_view name = "global_max_pooling2d";
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3,
        "lockstep::GlobalMaxPooling2D: the input does not have height, width and channels; put it "
        "before Flatten");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 3; }
};

static_assert(Layer<GlobalMaxPooling2D>);

}  // namespace lockstep
