/// \file
/// AveragePooling2D and GlobalAveragePooling2D on the CPU, in hand-written loops
/// (benchmarks/layers.cpp compares them with oneDNN). Invariants: the mean is over the part of the
/// window inside the image; sums are in the compute type of the activations, in double across more
/// than 16 terms.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/pooling2d.hpp"
#include "lockstep/layers/pooling/average_pooling2d.hpp"
#include "lockstep/layers/pooling/global_average_pooling2d.hpp"

namespace lockstep {
namespace detail {

/// Writes y for channels [first, last) of `examples`, with vectors of `Width` bytes.
template <std::size_t Width, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void average_pool_forward(
    const Pooling2DWindow& window, Slice examples, int first, int last, const A* x, A* y) {
  using T = typename ComputedIn<A>::type;
  using V = Lanes<T, Width>;
  const std::ptrdiff_t channels = window.in[2];
  const int width = window.in[1];
  for_each_window(
      window, examples,
      [&](const PoolingTaps& taps) __attribute__((always_inline, no_instrument_function)) {
        const T share = T(1) / static_cast<T>(taps.count());
        for (int k = first; k < last; k += lanes_of<T, Width>) {
          const A* const in = x + taps.in * channels + k;
          V sum{}, v;
          if (taps.count() <= 16) {
            for (int i = taps.first_row; i < taps.last_row; ++i)
              for (int j = taps.first_column; j < taps.last_column; ++j) {
                load(v, in + (i * width + j) * channels);
                sum += v;
              }
          } else {  // partial sums of at most 16 terms, added in double: bounds the rounding error
            double whole[lanes_of<T, Width>] = {};
            for (int i = taps.first_row; i < taps.last_row; ++i)
              for (int j = taps.first_column; j < taps.last_column; j += 16) {
                V part{};
                for (int n = j; n < std::min(j + 16, taps.last_column); ++n) {
                  load(v, in + (i * width + n) * channels);
                  part += v;
                }
                add_lanes<T>(whole, part);
              }
            T rounded[lanes_of<T, Width>];
            for (int n = 0; n < lanes_of<T, Width>; ++n) rounded[n] = static_cast<T>(whole[n]);
            load(sum, rounded);
          }
          sum *= share;
          store(y + taps.out * channels + k, sum);
        }
      });
}

/// Adds dy / taps to dx for channels [first, last), or stores it if each input pixel has only one
/// writer. The type of dx may differ from that of dy.
template <std::size_t Width, class A, class To>
[[gnu::always_inline, gnu::no_instrument_function]] inline void average_pool_backward(
    const Pooling2DWindow& window, bool only_writer, Slice examples, int first, int last,
    const A* dy, To* dx) {
  using T = typename ComputedIn<A>::type;
  using V = Lanes<T, Width>;
  const std::ptrdiff_t channels = window.in[2];
  const int width = window.in[1];
  for_each_window(window, examples,
                  [&](const PoolingTaps& taps)
                      __attribute__((always_inline, no_instrument_function)) {
                        const T share = T(1) / static_cast<T>(taps.count());
                        for (int k = first; k < last; k += lanes_of<T, Width>) {
                          To* const in = dx + taps.in * channels + k;
                          V gradient;
                          load(gradient, dy + taps.out * channels + k);
                          gradient *= share;
                          for (int i = taps.first_row; i < taps.last_row; ++i)
                            for (int j = taps.first_column; j < taps.last_column; ++j) {
                              To* const p = in + (i * width + j) * channels;
                              V sum{};
                              if (!only_writer) load(sum, p);
                              sum += gradient;
                              store(p, sum);
                            }
                        }
                      });
}

/// The pooling window of the op; global pooling is one window over the whole image.
constexpr Pooling2DWindow average_window(const AveragePooling2DOp& op) { return op.window; }
constexpr Pooling2DWindow average_window(const GlobalAveragePooling2DOp& op) {
  return {op.in, {op.in[0], op.in[1]}, {op.in[0], op.in[1]}, Padding::valid};
}

/// The kernel of both ops: threads split the batch, vectors run over channels.
template <class O, class D>
struct AveragePoolingKernel : KernelTraits {
  using A = ActivationOf<D>;
  using T = typename ComputedIn<A>::type;
  using Prepared = PoolingScratch<A>;

  static Prepared prepare(const O& op, typename D::Context& context, std::size_t) {
    return {average_window(op), context.threads()};
  }
  static void forward(const O& op, const Io<D>& io, Prepared&) {
    const Pooling2DWindow window = average_window(op);
    parallel_ranges(io.device.threads(), io.step.count, parallel_grain(window.in.size()),
                    [&](Slice examples, std::size_t) {
                      for_channels_of<T>(longest_vectors<A>(), window.in[2],
                                         [&](auto bytes, int first, int last) __attribute__((
                                             always_inline, no_instrument_function)) {
                                           average_pool_forward<bytes.value>(
                                               window, examples, first, last, io.x[0], io.y);
                                         });
                    });
  }
  /// dx = sum over the windows of a pixel of dy / (taps of the window inside the image).
  static void backward(const O& op, const Io<D>& io, Prepared& sums) {
    if (io.dx[0] == nullptr) return;
    const Pooling2DWindow window = average_window(op);
    pool_backward<A>(
        window, io, sums, [&](std::size_t n, Slice examples, bool only_writer, auto* dx) {
          const A* const dy = io.dy + n * op.out().size();
          for_channels_of<T>(longest_vectors<A>(), window.in[2],
                             [&](auto bytes, int first, int last)
                                 __attribute__((always_inline, no_instrument_function)) {
                                   average_pool_backward<bytes.value>(window, only_writer, examples,
                                                                      first, last, dy, dx);
                                 });
        });
  }
};

}  // namespace detail

template <class P>
struct Kernel<AveragePooling2DOp, BasicCpu<P>>
    : detail::AveragePoolingKernel<AveragePooling2DOp, BasicCpu<P>> {
  using library_kernel = Kernel;
};
template <class P>
struct Kernel<GlobalAveragePooling2DOp, BasicCpu<P>>
    : detail::AveragePoolingKernel<GlobalAveragePooling2DOp, BasicCpu<P>> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<AveragePooling2DOp, Cpu> && HasKernel<GlobalAveragePooling2DOp, Cpu>);

}  // namespace lockstep
