/// \file
/// Conv3D on a GPU: the passes of Conv2D.
#pragma once

#include <cstddef>

#include "lockstep/devices/cuda/ops/convolution/conv2d.hpp"
#include "lockstep/layers/convolution/conv3d.hpp"

namespace lockstep {

/// Keeps x, and packed weights for the step.
template <class Precision>
struct Kernel<Conv3DOp, BasicCuda<Precision>>
    : PreparedKernel<Conv3DOp, BasicCuda<Precision>, detail::cuda::ConvolutionCalls<Precision>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t saved_once(const Conv3DOp& op) {
    return detail::cuda::packed_bytes<Precision>(op);
  }
};

static_assert(HasKernel<Conv3DOp, Cuda>);

}  // namespace lockstep
