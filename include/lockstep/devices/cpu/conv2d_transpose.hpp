/// \file
/// Conv2DTranspose on the CPU, by the passes of the convolution C that maps its output to its
/// input:
///
///     y = C's input gradient of x (+ bias, in a separate loop)
///     dx = C's forward pass of dy,  dw = C's kernel gradient with x and dy exchanged
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/column_sums.hpp"
#include "lockstep/devices/cpu/conv2d.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/layers/convolution/conv2d_transpose.hpp"

namespace lockstep {
namespace detail {

/// The prepared passes of one transposed convolution at one batch size.
template <class D>
class TransposedCalls {
 public:
  using T = typename D::real;
  using A = ActivationOf<D>;

  TransposedCalls(const Conv2DTransposeOp& op, CpuContext<T>& context, std::size_t count)
      : calls_(op.convolution(), context, count, false),
        sums_((calls_.scratch_bytes() + 63) / 64 * 64),
        sums_bytes_(column_sums_bytes(context.threads(), static_cast<std::size_t>(op.filters))) {}
  TransposedCalls(const Conv2DTransposeOp& op, CpuContext<T>& context, std::size_t count,
                  ForwardOnly)
      : calls_(op.convolution(), context, count, false, "conv2d", InputGradientOnly{}),
        sums_(calls_.scratch_bytes()),
        sums_bytes_(0) {}
  std::size_t scratch_bytes() const { return sums_ + sums_bytes_; }

  void forward(const Conv2DTransposeOp& op, const Io<D>& io) {
    if (io.step.count == 0) return;
    Io<D> back = io;
    back.dx = &io.y;
    calls_.gradient_of_input(back, io.x[0]);
    if (op.bias) add_bias(op, io);
  }

  void backward(const Conv2DTransposeOp& op, const Io<D>& io) {
    if (io.step.count == 0) {
      if (io.dw != nullptr)
        std::fill_n(io.dw, op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0),
                    T(0));
      return;
    }
    Io<D> back = io;
    const A* const dy = io.dy;
    back.x = &dy;
    back.dy = const_cast<A*>(io.x[0]);  // read-only, since C has no ReLU
    calls_.gradient_of_weights(op.convolution(), back, back.dy);
    if (op.bias && io.dw != nullptr)
      column_sums(io.device.threads(), io.dy, pixels(op, io.step.count),
                  static_cast<std::size_t>(op.filters), io.dw + op.kernel_size(),
                  io.scratch + sums_);
    if (io.dx[0] == nullptr) return;
    back.y = io.dx[0];
    calls_.forward(op.convolution(), back);
  }

 private:
  static std::size_t pixels(const Conv2DTransposeOp& op, std::size_t count) {
    return count * static_cast<std::size_t>(op.height) * static_cast<std::size_t>(op.width);
  }
  static std::size_t grain(std::size_t filters) { return (1 << 14) / filters + 1; }

  static void add_bias(const Conv2DTransposeOp& op, const Io<D>& io) {
    const auto filters = static_cast<std::size_t>(op.filters);
    const T* const bias = io.w + op.kernel_size();  // (filters)
    parallel_ranges(io.device.threads(), pixels(op, io.step.count), grain(filters),
                    [&](Slice part, std::size_t) {
                      for (std::size_t i = part.first; i < part.first + part.count; ++i)
                        for (std::size_t f = 0; f < filters; ++f)
                          io.y[i * filters + f] = A(T(io.y[i * filters + f]) + bias[f]);
                    });
  }

  ConvolutionCalls<D> calls_;
  std::size_t sums_, sums_bytes_;  // offset and size of the bias sums in scratch
};

}  // namespace detail

template <class P>
struct Kernel<Conv2DTransposeOp, BasicCpu<P>>
    : PreparedKernel<Conv2DTransposeOp, BasicCpu<P>, detail::TransposedCalls<BasicCpu<P>>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
};

static_assert(HasKernel<Conv2DTransposeOp, Cpu>);

}  // namespace lockstep
