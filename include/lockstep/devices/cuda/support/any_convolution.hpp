/// \file
/// A convolution over images or volumes as one type. Invariant: a volume without an axis of depth, in
/// the input and in the kernel, is an image.
#pragma once

#include <array>
#include <span>

#include "lockstep/layers/convolution/conv3d.hpp"

namespace lockstep::detail::cuda {

/// The numbers of a Conv2DOp, whose depth is 1, or of a Conv3DOp.
struct AnyConvolution : Conv3DOp {
  bool over_images = true;

  AnyConvolution() = default;
  AnyConvolution(const Conv2DOp& op)
      : Conv3DOp{shape(1, op.in[0], op.in[1], op.in[2]),
                 op.filters,
                 {1, op.kernel.height, op.kernel.width},
                 {1, op.strides.height, op.strides.width},
                 {1, op.dilation.height, op.dilation.width},
                 op.padding,
                 op.bias,
                 op.groups} {}
  AnyConvolution(const Conv3DOp& op)
      : Conv3DOp(op), over_images(op.in[0] == 1 && op.kernel.depth == 1) {}

  /// `s`, without the depth of an image.
  Shape shown(Shape s) const { return over_images ? shape(s[1], s[2], s[3]) : s; }
  /// Of numbers along (depth, height, width), those of the axes that are there.
  template <class T>
  std::span<const T> axes(const std::array<T, 3>& all) const {
    return std::span(all).subspan(over_images ? 1 : 0);
  }
};

}  // namespace lockstep::detail::cuda
