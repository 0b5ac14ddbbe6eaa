/// \file
/// DepthwiseConv2D on the CPU: oneDNN's grouped convolution with one group per channel. oneDNN is
/// fast only with one filter per group, so with a depth multiplier each channel is repeated in
/// scratch, once per filter; backward adds the gradients of the copies.
#pragma once

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"

namespace lockstep {
namespace detail {

/// The prepared passes of one depthwise convolution; in depthwise_conv2d.ipp.
template <class D>
class DepthwiseCalls;

}  // namespace detail

template <class P>
struct Kernel<DepthwiseConv2DOp, BasicCpu<P>>
    : PreparedKernel<DepthwiseConv2DOp, BasicCpu<P>, detail::DepthwiseCalls<BasicCpu<P>>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
};

static_assert(HasKernel<DepthwiseConv2DOp, Cpu>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/depthwise_conv2d.ipp"
#endif
