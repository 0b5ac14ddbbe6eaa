#pragma once

#include "lockstep/devices/cuda/support/convolution_text.hpp"

namespace lockstep::detail::cuda {

std::vector<Define> convolution_defines(const Conv2DOp& op) {
  const Shape out = op.out();
  return {{"IN_HEIGHT", op.in[0]},
          {"IN_WIDTH", op.in[1]},
          {"CHANNELS", op.in[2]},
          {"OUT_HEIGHT", out[0]},
          {"OUT_WIDTH", out[1]},
          {"FILTERS", op.filters},
          {"KERNEL_HEIGHT", op.kernel.height},
          {"KERNEL_WIDTH", op.kernel.width},
          {"STRIDE_Y", op.strides.height},
          {"STRIDE_X", op.strides.width},
          {"DILATION_Y", op.dilation.height},
          {"DILATION_X", op.dilation.width},
          {"TOP", op.rows().before()},
          {"LEFT", op.columns().before()}};
}

}  // namespace lockstep::detail::cuda
