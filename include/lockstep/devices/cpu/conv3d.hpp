/// \file
/// Conv3D on the CPU: the oneDNN passes of Conv2D, with one more axis. Invariant: callers see NDHWC
/// volumes and DHWIO kernels.
#pragma once

#include "lockstep/devices/cpu/conv2d.hpp"
#include "lockstep/layers/convolution/conv3d.hpp"

namespace lockstep {

template <class P>
struct Kernel<Conv3DOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Prepared = detail::ConvolutionCalls<D, Conv3DOp>;
  static constexpr bool keeps_x = true, skips_dw = true;

  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const Conv3DOp& op, typename D::Context& context, std::size_t count,
                          Only... only) {
    return Prepared(op, context, count, false, "conv3d", only...);
  }
  static void forward(const Conv3DOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op, io);
  }
  static void backward(const Conv3DOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op, io);
  }
};

static_assert(HasKernel<Conv3DOp, Cpu> && HasKernel<Conv3DOp, CpuBFloat16>);

}  // namespace lockstep
