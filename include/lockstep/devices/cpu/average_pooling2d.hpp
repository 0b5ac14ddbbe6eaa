/// \file
/// AveragePooling2D and GlobalAveragePooling2D on the CPU, in loops of our own (see
/// benchmarks/layers.cpp for oneDNN's times). Invariant: the mean is over the part of the window
/// that lies inside the image.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/pooling2d.hpp"
#include "lockstep/layers/average_pooling2d.hpp"
#include "lockstep/layers/global_average_pooling2d.hpp"

namespace lockstep {
namespace detail {

template <std::size_t Width, class T>
[[gnu::always_inline]] inline void average_pool_forward(const Pooling2DWindow& window,
                                                        Slice examples, int first, int last,
                                                        const T* x, T* y) {
  using V = Lanes<T, Width>;
  const std::ptrdiff_t channels = window.in[2];
  const int width = window.in[1];
  for_each_window(
      window, examples, [&](const PoolingTaps& taps) __attribute__((always_inline)) {
        const T share = T(1) / static_cast<T>(taps.count());
        for (int k = first; k < last; k += lanes_of<T, Width>) {
          const T* const in = x + taps.in * channels + k;
          V sum{}, v;
          for (int i = taps.first_row; i < taps.last_row; ++i)
            for (int j = taps.first_column; j < taps.last_column; ++j) {
              load(v, in + (i * width + j) * channels);
              sum += v;
            }
          sum *= share;
          store(y + taps.out * channels + k, sum);
        }
      });
}

template <std::size_t Width, class T>
[[gnu::always_inline]] inline void average_pool_backward(const Pooling2DWindow& window,
                                                         bool only_writer, Slice examples,
                                                         int first, int last, const T* dy, T* dx) {
  using V = Lanes<T, Width>;
  const std::ptrdiff_t channels = window.in[2];
  const int width = window.in[1];
  for_each_window(
      window, examples, [&](const PoolingTaps& taps) __attribute__((always_inline)) {
        const T share = T(1) / static_cast<T>(taps.count());
        for (int k = first; k < last; k += lanes_of<T, Width>) {
          T* const in = dx + taps.in * channels + k;
          V gradient;
          load(gradient, dy + taps.out * channels + k);
          gradient *= share;
          for (int i = taps.first_row; i < taps.last_row; ++i)
            for (int j = taps.first_column; j < taps.last_column; ++j) {
              T* const p = in + (i * width + j) * channels;
              V sum{};
              if (!only_writer) load(sum, p);
              sum += gradient;
              store(p, sum);
            }
        }
      });
}

/// The global mean is the mean of one window.
constexpr Pooling2DWindow average_window(const AveragePooling2DOp& op) { return op.window; }
constexpr Pooling2DWindow average_window(const GlobalAveragePooling2DOp& op) {
  return {op.in, {op.in[0], op.in[1]}, {op.in[0], op.in[1]}, Padding::valid};
}

template <class O, class D>
struct AveragePoolingKernel : KernelTraits {
  using T = typename D::real;

  [[gnu::noinline]] static void forward(const O& op, const Io<D>& io) {
    const Pooling2DWindow window = average_window(op);
    parallel_ranges(
        io.device.threads(), io.count, parallel_grain(window.in.size()),
        [&](Slice examples, std::size_t) {
          for_channels<T>(
              has_vectors(),
              window.in[2], [&](auto bytes, int first, int last) __attribute__((always_inline)) {
                average_pool_forward<bytes.value>(window, examples, first, last, io.x, io.y);
              });
        });
  }
  [[gnu::noinline]] static void backward(const O& op, const Io<D>& io) {
    if (io.dx == nullptr) return;
    const Pooling2DWindow window = average_window(op);
    const std::size_t size = window.in.size();
    parallel_ranges(
        io.device.threads(), io.count, parallel_grain(size), [&](Slice examples, std::size_t) {
          const bool only_writer = tiles(window);
          if (!only_writer) std::fill_n(io.dx + examples.first * size, examples.count * size, T(0));
          for_channels<T>(
              has_vectors(),
              window.in[2], [&](auto bytes, int first, int last) __attribute__((always_inline)) {
                average_pool_backward<bytes.value>(window, only_writer, examples, first, last,
                                                   io.dy, io.dx);
              });
        });
  }
};

}  // namespace detail

template <class P>
struct Kernel<AveragePooling2DOp, BasicCpu<P>>
    : detail::AveragePoolingKernel<AveragePooling2DOp, BasicCpu<P>> {};
template <class P>
struct Kernel<GlobalAveragePooling2DOp, BasicCpu<P>>
    : detail::AveragePoolingKernel<GlobalAveragePooling2DOp, BasicCpu<P>> {};

static_assert(HasKernel<AveragePooling2DOp, Cpu> && HasKernel<GlobalAveragePooling2DOp, Cpu>);

}  // namespace lockstep
