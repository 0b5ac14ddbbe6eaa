/// \file
/// Sliding-window arithmetic along one axis, by TensorFlow's rules.
///
///     in = 8, kernel = 3, stride = 2, same: out = 4, before = 0, after = 1
///
///     x   0 1 2 3 4 5 6 7 .        . padding
///         [---]                    y[0]
///             [---]                y[1]
///                 [---]            y[2]
///                     [---]        y[3]
#pragma once

#include "lockstep/layers/options.hpp"

namespace lockstep {

/// A window of `kernel` taps, `dilation` apart, that moves over `in` elements in steps of `stride`.
struct Window {
  int in = 1, kernel = 1, stride = 1, dilation = 1;
  Padding padding = Padding::valid;

  /// Elements from the first tap to the last.
  constexpr int extent() const { return (kernel - 1) * dilation + 1; }
  /// Number of window positions.
  constexpr int out() const {
    const int step = stride > 0 ? stride : 1;  // a stride of 0 is reported by the layer
    return padding == Padding::same ? (in + step - 1) / step : (in - extent()) / step + 1;
  }
  /// Padding before the first element; `same` puts an odd one after the last.
  constexpr int before() const {
    const int total = (out() - 1) * stride + extent() - in;
    return padding == Padding::same && total > 0 ? total / 2 : 0;
  }
  /// Padding after the last element.
  constexpr int after() const {
    const int total = (out() - 1) * stride + extent() - in - before();
    return padding == Padding::same && total > 0 ? total : 0;
  }
  /// Whether there is at least one window position.
  constexpr bool fits() const { return in >= 1 && (padding == Padding::same || in >= extent()); }
};

static_assert(Window{8, 3, 2, 1, Padding::same}.before() == 0 &&
              Window{8, 3, 2, 1, Padding::same}.after() == 1);
static_assert(Window{28, 3}.out() == 26 && Window{26, 2, 2}.out() == 13);

}  // namespace lockstep
