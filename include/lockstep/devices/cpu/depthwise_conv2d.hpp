/// \file
/// DepthwiseConv2D on the CPU: oneDNN's grouped convolution with one group per channel. oneDNN is
/// fast only with one filter per group, so with a depth multiplier each channel is repeated in
/// scratch, once per filter; backward adds the gradients of the copies.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/conv2d.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"

namespace lockstep {
namespace detail {

/// The prepared passes of one depthwise convolution at one batch size.
template <class D>
class DepthwiseCalls {
 public:
  using T = typename D::real;
  using A = ActivationOf<D>;

  template <std::same_as<ForwardOnly>... Only>
  DepthwiseCalls(const DepthwiseConv2DOp& op, CpuContext<T>& context, std::size_t count,
                 Only... only)
      : op_(repeated(op)), calls_(op_, context, count, false, "depthwise_conv2d", only...) {
    if (op.multiplier > 1) size_ = count * op_.in.size();
    repeated_ = (calls_.scratch_bytes() + 63) / 64 * 64;
  }
  std::size_t scratch_bytes() const { return repeated_ + size_ * sizeof(A); }

  void forward(const DepthwiseConv2DOp& op, const Io<D>& io) {
    const A* x = nullptr;
    calls_.forward(op_, with_x(op, io, x));
  }

  void backward(const DepthwiseConv2DOp& op, const Io<D>& io) {
    if (op.multiplier == 1 || io.step.count == 0) return calls_.backward(op_, io);
    const A* x = nullptr;
    if (io.dw != nullptr) calls_.gradient_of_weights(op_, with_x(op, io, x), io.dy);
    if (io.dx[0] == nullptr) return;
    // Overwrites the repeated x, which is no longer needed.
    A* const dx = reinterpret_cast<A*>(io.scratch + repeated_);
    Io<D> wide = io;
    wide.dx = &dx;
    calls_.gradient_of_input(wide, io.dy);
    const auto each = static_cast<std::size_t>(op.multiplier);
    parallel_ranges(io.device.threads(), io.step.count * op.in.size(), grain,
                    [&](Slice part, std::size_t) {
                      for (std::size_t i = part.first; i < part.first + part.count; ++i) {
                        T sum = 0;
                        for (std::size_t q = 0; q < each; ++q) sum += T(dx[i * each + q]);
                        io.dx[0][i] = A(sum);
                      }
                    });
  }

 private:
  static constexpr std::size_t grain = 1 << 13;  // minimum elements of x per thread

  /// The equivalent convolution over the repeated channels, each a group with one filter.
  static Conv2DOp repeated(const DepthwiseConv2DOp& op) {
    return {shape(op.in[0], op.in[1], op.filters()),
            op.filters(),
            op.kernel,
            op.strides,
            op.dilation,
            op.padding,
            op.bias,
            op.filters()};
  }

  /// Returns `io` with x[0] replaced by the repeated channels, which it writes to scratch. `place`
  /// holds their address and must outlive the result.
  Io<D> with_x(const DepthwiseConv2DOp& op, const Io<D>& io, const A*& place) const {
    Io<D> wide = io;
    if (op.multiplier == 1) return wide;
    const auto each = static_cast<std::size_t>(op.multiplier);
    A* const x = reinterpret_cast<A*>(io.scratch + repeated_);  // (count, height, width, filters)
    parallel_ranges(io.device.threads(), io.step.count * op.in.size(), grain,
                    [&](Slice part, std::size_t) {
                      for (std::size_t i = part.first; i < part.first + part.count; ++i)
                        std::fill_n(x + i * each, each, io.x[0][i]);
                    });
    place = x;
    wide.x = &place;
    return wide;
  }

  Conv2DOp op_;
  ConvolutionCalls<D> calls_;
  std::size_t repeated_ = 0, size_ = 0;  // repeated x in scratch: offset in bytes, elements
};

}  // namespace detail

template <class P>
struct Kernel<DepthwiseConv2DOp, BasicCpu<P>>
    : PreparedKernel<DepthwiseConv2DOp, BasicCpu<P>, detail::DepthwiseCalls<BasicCpu<P>>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
};

static_assert(HasKernel<DepthwiseConv2DOp, Cpu>);

}  // namespace lockstep
