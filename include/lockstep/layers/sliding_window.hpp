/// \file
/// One axis of a sliding window: how many results it gives and where it starts. TensorFlow's rules.
#pragma once

#include "lockstep/layers/options.hpp"

namespace lockstep {

/// An axis of `in` elements under a window of `kernel` taps, `dilation` apart, that moves by
/// `stride`.
struct Window {
  int in = 1, kernel = 1, stride = 1, dilation = 1;
  Padding padding = Padding::valid;

  /// Elements from the first tap to the last.
  constexpr int extent() const { return (kernel - 1) * dilation + 1; }
  constexpr int out() const {
    const int step = stride > 0 ? stride : 1;  // the layer's sentence is about a stride of 0
    return padding == Padding::same ? (in + step - 1) / step : (in - extent()) / step + 1;
  }
  /// Padding in front; `same` puts the odd one behind.
  constexpr int before() const {
    const int total = (out() - 1) * stride + extent() - in;
    return padding == Padding::same && total > 0 ? total / 2 : 0;
  }
  constexpr int after() const {
    const int total = (out() - 1) * stride + extent() - in - before();
    return padding == Padding::same && total > 0 ? total : 0;
  }
  constexpr bool fits() const { return in >= 1 && (padding == Padding::same || in >= extent()); }
};

static_assert(Window{8, 3, 2, 1, Padding::same}.before() == 0 &&
              Window{8, 3, 2, 1, Padding::same}.after() == 1);
static_assert(Window{28, 3}.out() == 26 && Window{26, 2, 2}.out() == 13);

}  // namespace lockstep
