/// \file
/// Generated convolutions and pooling windows over volumes.
#pragma once

#include <string>

#include "lockstep/layers/convolution/conv3d.hpp"
#include "lockstep/layers/pooling/pooling3d.hpp"
#include "support/kernel_numbers.hpp"

namespace testing {

/// A volume in which axes of one element, and one channel, are frequent.
inline lockstep::Shape generated_volume(lockstep::Philox& g) {
  const auto extent = [&] { return one_of(g, 1, 2, 3, 4, 5, 7, 8); };
  const int depth = extent(), height = extent(), width = extent();
  return lockstep::shape(depth, height, width, one_of(g, 1, 1, 2, 3, 4, 8, 13, 16));
}

/// Kernels of 1 to 4 taps, strides of 1 to 5, also above the kernel's size.
inline lockstep::Conv3DOp generated_volume_convolution(lockstep::Philox& g) {
  for (;;) {
    lockstep::Conv3DOp op;
    op.in = generated_volume(g);
    op.filters = one_of(g, 1, 3, 8, 10, 16);
    if (one_of(g, 0, 0, 0, 1) == 0)
      op.kernel = {between(g, 1, 4), between(g, 1, 4), between(g, 1, 4)};
    if (one_of(g, 0, 1) == 0) op.strides = {between(g, 1, 5), between(g, 1, 3), between(g, 1, 3)};
    if (one_of(g, 0, 1) == 0) op.dilation = {between(g, 1, 3), between(g, 1, 2), between(g, 1, 2)};
    op.padding = one_of(g, 0, 1) == 0 ? lockstep::valid : lockstep::same;
    op.bias = one_of(g, 0, 1) == 0;
    if (one_of(g, 0, 0, 1) == 1) {
      op.groups = between(g, 2, 4);
      op.in.extent[3] *= op.groups;
      op.filters *= op.groups;
    }
    if (op.depths().fits() && op.rows().fits() && op.columns().fits() && op.flops() < 2e6)
      return op;
  }
}

inline lockstep::Pooling3DWindow generated_volume_window(lockstep::Philox& g) {
  for (;;) {
    lockstep::Pooling3DWindow window;
    window.in = generated_volume(g);
    window.pool = {between(g, 1, 4), between(g, 1, 4), between(g, 1, 4)};
    window.strides = {between(g, 1, 5), between(g, 1, 4), between(g, 1, 4)};
    window.padding = one_of(g, 0, 1) == 0 ? lockstep::valid : lockstep::same;
    const lockstep::Pooling2DWindow slice = window.slice();
    if (window.depths().fits() && slice.rows().fits() && slice.columns().fits()) return window;
  }
}

/// "2x3x1" of a kernel size, strides or a dilation.
inline std::string by_axis(const auto& size) {
  return std::to_string(size.depth) + "x" + std::to_string(size.height) + "x" +
         std::to_string(size.width);
}
inline std::string describe(const lockstep::Conv3DOp& op) {
  return lockstep::to_string(op.in) + " -> " + lockstep::to_string(op.out()) + ", kernel " +
         by_axis(op.kernel) + ", strides " + by_axis(op.strides) + ", dilation " +
         by_axis(op.dilation) + (op.padding == lockstep::same ? ", same" : ", valid") +
         (op.bias ? ", bias" : "") + (op.groups > 1 ? ", groups " + std::to_string(op.groups) : "");
}
inline std::string describe(const lockstep::Pooling3DWindow& window) {
  return lockstep::to_string(window.in) + ", pool " + by_axis(window.pool) + ", strides " +
         by_axis(window.strides) + (window.padding == lockstep::same ? ", same" : ", valid");
}

}  // namespace testing
