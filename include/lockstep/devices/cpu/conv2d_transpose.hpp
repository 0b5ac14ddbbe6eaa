/// \file
/// Conv2DTranspose on the CPU, by the passes of the convolution that leads from its result back to
/// its input: forward is that one's gradient of the input, backward its forward pass and its
/// gradient of the kernel with x and dy exchanged. The bias is added by a loop.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/conv2d.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/layers/conv2d_transpose.hpp"

namespace lockstep {
namespace detail {

/// The passes of one transposed convolution at one batch size.
template <class D>
class TransposedCalls {
 public:
  using T = typename D::real;
  using A = ActivationOf<D>;

  TransposedCalls(const Conv2DTransposeOp& op, CpuContext<T>& context, std::size_t count)
      : calls_(op.convolution(), context, count, false),
        sums_((calls_.scratch_bytes() + 63) / 64 * 64),
        row_((static_cast<std::size_t>(op.filters) + 31) / 16 * 16),
        threads_(static_cast<std::size_t>(context.threads())) {}
  std::size_t scratch_bytes() const { return sums_ + threads_ * row_ * sizeof(T); }

  void forward(const Conv2DTransposeOp& op, const Io<D>& io) {
    if (io.count == 0) return;
    Io<D> back = io;
    back.dx = io.y;
    calls_.gradient_of_input(back, io.x);
    if (op.bias) add_bias(op, io);
  }

  void backward(const Conv2DTransposeOp& op, const Io<D>& io) {
    if (io.count == 0) {
      std::fill_n(io.dw, op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0),
                  T(0));
      return;
    }
    Io<D> back = io;
    back.x = io.dy;
    back.dy = const_cast<A*>(io.x);  // without a ReLU it is only read
    calls_.gradient_of_weights(op.convolution(), back, back.dy);
    if (op.bias) gradient_of_bias(op, io);
    if (io.dx == nullptr) return;
    back.y = io.dx;
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
    parallel_ranges(io.device.threads(), pixels(op, io.count), grain(filters),
                    [&](Slice part, std::size_t) {
                      for (std::size_t i = part.first; i < part.first + part.count; ++i)
                        for (std::size_t f = 0; f < filters; ++f)
                          io.y[i * filters + f] = A(T(io.y[i * filters + f]) + bias[f]);
                    });
  }

  /// Each thread adds up its own pixels; their sums are added in the order of the threads.
  void gradient_of_bias(const Conv2DTransposeOp& op, const Io<D>& io) const {
    const auto filters = static_cast<std::size_t>(op.filters);
    T* const sums = reinterpret_cast<T*>(io.scratch + sums_);  // (threads, row)
    std::fill_n(sums, threads_ * row_, T(0));
    parallel_ranges(static_cast<int>(threads_), pixels(op, io.count), grain(filters),
                    [&](Slice part, std::size_t index) {
                      T* const mine = sums + index * row_;  // (filters)
                      for (std::size_t i = part.first; i < part.first + part.count; ++i)
                        for (std::size_t f = 0; f < filters; ++f)
                          mine[f] += T(io.dy[i * filters + f]);
                    });
    T* const d_bias = io.dw + op.kernel_size();  // (filters)
    std::fill_n(d_bias, filters, T(0));
    for (std::size_t t = 0; t < threads_; ++t)
      for (std::size_t f = 0; f < filters; ++f) d_bias[f] += sums[t * row_ + f];
  }

  ConvolutionCalls<D> calls_;
  std::size_t sums_, row_, threads_;  // bytes into scratch, elements a thread
};

}  // namespace detail

template <class P>
struct Kernel<Conv2DTransposeOp, BasicCpu<P>>
    : PreparedKernel<Conv2DTransposeOp, BasicCpu<P>, detail::TransposedCalls<BasicCpu<P>>> {
  static constexpr bool keeps_x = true;
};

static_assert(HasKernel<Conv2DTransposeOp, Cpu>);

}  // namespace lockstep
