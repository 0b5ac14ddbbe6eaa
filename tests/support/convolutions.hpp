/// \file
/// Generated convolutions.
#pragma once

#include <string>

#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/layers/convolution/conv2d_transpose.hpp"
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"
#include "support/kernel_numbers.hpp"

namespace testing {

inline lockstep::Conv2DOp generated_convolution(lockstep::Philox& g) {
  for (;;) {
    lockstep::Conv2DOp op;
    op.in = lockstep::shape(between(g, 1, 13), between(g, 1, 13), one_of(g, 1, 2, 3, 4, 5, 8, 16));
    op.filters = one_of(g, 1, 3, 8, 10, 16, 24);
    op.kernel = {between(g, 1, 5), between(g, 1, 5)};
    op.strides = {between(g, 1, 3), between(g, 1, 3)};
    op.dilation = {between(g, 1, 2), between(g, 1, 2)};
    op.padding = one_of(g, 0, 1) == 0 ? lockstep::valid : lockstep::same;
    op.bias = one_of(g, 0, 1) == 0;
    if (op.rows().fits() && op.columns().fits()) return op;
  }
}

/// A convolution in 2 to 5 groups, among them depthwise ones.
inline lockstep::Conv2DOp generated_grouped(lockstep::Philox& g) {
  lockstep::Conv2DOp op = generated_convolution(g);
  op.groups = between(g, 2, 5);
  op.in = lockstep::shape(op.in[0], op.in[1], op.groups * one_of(g, 1, 2, 3, 4, 8, 16));
  op.filters = op.groups * one_of(g, 1, 2, 3, 8, 16);
  return op;
}

/// A transposed convolution with any legal output padding.
inline lockstep::Conv2DTransposeOp generated_transposed(lockstep::Philox& g) {
  const lockstep::Conv2DOp back = generated_convolution(g);
  return {back.out(),   back.in[0],    back.in[1],   back.in[2],          back.kernel,
          back.strides, back.dilation, back.padding, one_of(g, 0, 1) == 1};
}

inline lockstep::DepthwiseConv2DOp depthwise(const lockstep::Conv2DOp& op, int multiplier) {
  return {op.in, multiplier, op.kernel, op.strides, op.dilation, op.padding, op.bias};
}

inline std::string describe(const lockstep::Conv2DOp& op) {
  const auto pair = [](int a, int b) { return std::to_string(a) + "x" + std::to_string(b); };
  return lockstep::to_string(op.in) + " -> " + lockstep::to_string(op.out()) + ", kernel " +
         pair(op.kernel.height, op.kernel.width) + ", strides " +
         pair(op.strides.height, op.strides.width) + ", dilation " +
         pair(op.dilation.height, op.dilation.width) +
         (op.padding == lockstep::same ? ", same" : ", valid") + (op.bias ? ", bias" : "") +
         (op.groups > 1 ? ", groups " + std::to_string(op.groups) : "");
}

inline std::size_t weights_of(const lockstep::Conv2DOp& op) {
  return op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0);
}
inline std::size_t weights_of(const lockstep::Conv2DTransposeOp& op) {
  return op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0);
}
inline std::size_t weights_of(const lockstep::DepthwiseConv2DOp& op) {
  return op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters()) : 0);
}

}  // namespace testing
