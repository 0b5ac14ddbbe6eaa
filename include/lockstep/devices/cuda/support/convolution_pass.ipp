#pragma once

#include "lockstep/devices/cuda/support/convolution_pass.hpp"

namespace lockstep::detail::cuda {

ProductSizes product_sizes(const Conv2DOp& op, std::size_t count, ConvolutionPass pass) {
  const Shape out = op.out();
  const auto n = static_cast<std::int64_t>(count);
  const std::int64_t pixels = n * out[0] * out[1], in_pixels = n * op.in[0] * op.in[1],
                     taps = std::int64_t{op.kernel.height} * op.kernel.width,
                     depth = taps * op.channels();
  switch (pass) {
    case ConvolutionPass::forward:
      // y = x at the taps * kernel
      return {pixels, op.filters, depth};
    case ConvolutionPass::backward_data:
      // dx = dy at the taps * kernel, transposed
      return {in_pixels, op.channels(), taps * op.filters};
    default:
      // dw = x at the taps, transposed * dy
      return {depth, op.filters, pixels};
  }
}

}  // namespace lockstep::detail::cuda
