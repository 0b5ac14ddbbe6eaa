/// \file
/// The first layers of an image network in one pass: Conv2D over 1 to 4 channels, ReLU and 2 x 2
/// MaxPooling2D. Invariants: the input is the batch itself, so no input gradient is computed; NaN
/// propagates in both passes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/fused_relu.hpp"

namespace lockstep {
namespace detail {

/// The passes; in fused/pooled_convolution.hpp.
template <class T>
class PooledConvolution;

}  // namespace detail

template <class P>
struct Kernel<ConvReLUPoolOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Prepared = detail::PooledConvolution<typename D::real>;
  static constexpr bool keeps_x = true;
  /// Requires 1 to 4 channels, and filters that are a multiple of two of the shorter vectors.
  static constexpr bool fits(const ConvReLUPoolOp& op) {
    constexpr int lanes = detail::vector_bytes / sizeof(typename D::real);
    const Pooling2DWindow& w = op.pool.window;
    return op.conv.channels() <= 4 && op.conv.filters % (2 * lanes) == 0 &&
           w.pool == KernelSize{2, 2} && w.strides == Strides{2, 2};
  }
  /// Bytes of winners, an upper bound over all vector lengths.
  static constexpr std::size_t saved(const ConvReLUPoolOp& op) {
    const Shape out = op.conv.out();
    return shape(out[0] / 2, out[1] / 2, out[2]).size() * sizeof(std::uint16_t);
  }

  static Prepared prepare(const ConvReLUPoolOp& op, typename D::Context& context, std::size_t) {
    return Prepared(op.conv, context.threads(), detail::longest_vectors());
  }
  static void forward(const ConvReLUPoolOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(io.step.count, io.x[0], io.w, bias(op, io.w), io.y, io.saved, io.scratch);
  }
  static void backward(const ConvReLUPoolOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(io.step.count, io.x[0], io.dy, io.saved, io.dw, bias(op, io.dw), io.scratch);
  }

 private:
  template <class T>
  static T* bias(const ConvReLUPoolOp& op, T* w) {
    return op.conv.bias ? w + op.conv.kernel_size() : nullptr;
  }
};

static_assert(HasKernel<ConvReLUPoolOp, Cpu>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/fused/pooled_convolution.hpp"
#endif
