/// \file
/// Conv2D on the CPU: oneDNN, or hand-written loops where they are faster.
///
///                        float, 3 x 3, stride 1,     float,            otherwise
///                        16 n channels and filters   1 to 4 channels
///     forward            Winograd                    oneDNN            oneDNN
///     kernel gradient    Winograd                    few_channels      oneDNN + column_sums
///     input gradient     Winograd                    oneDNN            oneDNN
///
/// (Exact conditions: WinogradConvolution::fits, FewChannelsGradient::fits.)
///
/// oneDNN's ReLU maps NaN to 0. So it follows a convolution only after a check that the inputs
/// cannot make a NaN; otherwise, or if the check reads more than our own ReLU would, `rectify`
/// follows the convolution.
///
/// Invariants: callers see NHWC images and HWIO kernels. Within a pass the kernel is in oneDNN's
/// preferred layout and in the type of the images, as a copy in scratch (microseconds, against
/// milliseconds for the pass). The kernel gradient is summed in the type of the weights.
#pragma once

#include <concepts>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep {
namespace detail {

/// Last argument of ConvolutionCalls for a transposed convolution's forward.
struct InputGradientOnly {};

/// The prepared passes of one convolution, Conv2DOp or Conv3DOp; in conv2d.ipp.
template <class D, class Op = Conv2DOp>
class ConvolutionCalls;

}  // namespace detail

template <class P>
struct Kernel<Conv2DOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Prepared = detail::ConvolutionCalls<D>;
  static constexpr bool keeps_x = true, skips_dw = true;

  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const Conv2DOp& op, typename D::Context& context, std::size_t count,
                          Only... only) {
    return Prepared(op, context, count, false, "conv2d", only...);
  }
  static void forward(const Conv2DOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op, io);
  }
  static void backward(const Conv2DOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op, io);
  }
};

static_assert(HasKernel<Conv2DOp, Cpu> && HasKernel<Conv2DOp, CpuBFloat16>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/conv2d.ipp"
#endif
