/// \file
/// Conv2DTranspose on the CPU, by the passes of the convolution C that maps its output to its
/// input:
///
///     y = C's input gradient of x (+ bias, in a separate loop)
///     dx = C's forward pass of dy,  dw = C's kernel gradient with x and dy exchanged
#pragma once

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/layers/convolution/conv2d_transpose.hpp"

namespace lockstep {
namespace detail {

/// The prepared passes of one transposed convolution; in conv2d_transpose.ipp.
template <class D>
class TransposedCalls;

}  // namespace detail

template <class P>
struct Kernel<Conv2DTransposeOp, BasicCpu<P>>
    : PreparedKernel<Conv2DTransposeOp, BasicCpu<P>, detail::TransposedCalls<BasicCpu<P>>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
};

static_assert(HasKernel<Conv2DTransposeOp, Cpu>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/conv2d_transpose.ipp"
#endif
