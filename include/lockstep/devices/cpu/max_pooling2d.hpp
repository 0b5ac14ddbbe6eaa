/// \file
/// MaxPooling2D on the CPU, in loops of our own: oneDNN 2.6 is many times slower on NHWC images
/// (see benchmarks/layers.cpp). Invariants: the winning tap is saved, as one byte an output if the
/// window has at most 256 taps, else as four; of equal maxima the first in row-major order wins.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/pooling2d.hpp"
#include "lockstep/layers/max_pooling2d.hpp"

namespace lockstep {
namespace detail {

// Between 32-bit lanes and bytes; __builtin_convertvector of g++ 12 goes element by element.
static_assert(std::endian::native == std::endian::little,
              "lockstep::Cpu: max pooling packs its winners for little-endian machines; use "
              "Reference<float> here");

template <std::size_t Width>
[[gnu::always_inline]] inline void store_taps(std::uint32_t* p,
                                              const Lanes<std::int32_t, Width>& taps) {
  store(p, taps);
}
template <std::size_t Width>
[[gnu::always_inline]] inline void store_taps(std::uint8_t* p,
                                              const Lanes<std::int32_t, Width>& taps) {
  Lanes<std::uint8_t, Width> bytes;
  std::memcpy(&bytes, &taps, sizeof bytes);
  [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
    store(p, __builtin_shufflevector(bytes, bytes, (4 * I)...));
  }
  (std::make_index_sequence<Width / 4>{});
}
template <std::size_t Width>
[[gnu::always_inline]] inline void load_taps(Lanes<std::int32_t, Width>& taps,
                                             const std::uint32_t* p) {
  load(taps, p);
}
template <std::size_t Width>
[[gnu::always_inline]] inline void load_taps(Lanes<std::int32_t, Width>& taps,
                                             const std::uint8_t* p) {
  using Pairs = Lanes<std::uint64_t, Width>;
  std::uint64_t packed = 0;
  std::memcpy(&packed, p, Width / 4);
  Pairs shift{};
  for (std::size_t i = 0; i < Width / 8; ++i) shift[i] = 16 * i;
  const Pairs two = (Pairs{} + packed) >> shift;  // each holds the bytes of its two lanes
  const Pairs lanes = (two & 0xFF) | ((two & 0xFF00) << 24);
  std::memcpy(&taps, &lanes, sizeof taps);
}

/// f(rows, columns) of the pool; as constants if it is 2 x 2, so that the walk over its taps is
/// unrolled.
template <class F>
[[gnu::always_inline]] inline void with_taps_of(const PoolingTaps& taps, const F& f) {
  if (taps.first_row == 0 && taps.last_row == 2 && taps.first_column == 0 && taps.last_column == 2)
    f(0, 2, 0, 2);
  else
    f(taps.first_row, taps.last_row, taps.first_column, taps.last_column);
}

template <std::size_t Width, class T, class Tap>
[[gnu::always_inline]] inline void max_pool_forward(const Pooling2DWindow& window, Slice examples,
                                                    const T* x, T* y, Tap* winners) {
  const auto channels = static_cast<std::ptrdiff_t>(window.in[2]);
  const int width = window.in[1], pool_width = window.pool.width;
  for_each_window(
      window, examples, [&](const PoolingTaps& taps) __attribute__((always_inline)) {
        with_taps_of(
            taps, [&](int top, int bottom, int left, int right) __attribute__((always_inline)) {
              for_each_lanes<T, Width>(
                  static_cast<std::size_t>(channels), [&](auto bytes, std::size_t k) __attribute__((
                                                          always_inline)) {
                    using V = Lanes<T, bytes.value>;
                    using I = Lanes<std::int32_t, bytes.value>;
                    const T* const in = x + taps.in * channels + k;
                    const std::size_t out = static_cast<std::size_t>(taps.out * channels) + k;
                    V best;
                    load(best, in + (top * width + left) * channels);
                    I winner = I{} + (top * pool_width + left);
                    for (int i = top; i < bottom; ++i)
                      for (int j = left; j < right; ++j) {
                        V v;
                        load(v, in + (i * width + j) * channels);
                        const auto better = v > best;
                        best = better ? v : best;
                        winner = better ? I{} + (i * pool_width + j) : winner;
                      }
                    store(y + out, best);
                    if constexpr (bytes.value == 0)
                      winners[out] = static_cast<Tap>(winner);
                    else
                      store_taps<bytes.value>(winners + out, winner);
                  });
            });
      });
}

template <std::size_t Width, class T, class Tap>
[[gnu::always_inline]] inline void max_pool_backward(const Pooling2DWindow& window, Slice examples,
                                                     const T* dy, T* dx, const Tap* winners) {
  const auto channels = static_cast<std::ptrdiff_t>(window.in[2]);
  const int width = window.in[1], pool_width = window.pool.width;
  const bool only_writer = tiles(window);
  if (!only_writer)
    std::fill_n(dx + examples.first * window.in.size(), examples.count * window.in.size(), T(0));
  for_each_window(
      window, examples, [&](const PoolingTaps& taps) __attribute__((always_inline)) {
        with_taps_of(
            taps, [&](int top, int bottom, int left, int right) __attribute__((always_inline)) {
              for_each_lanes<T, Width>(
                  static_cast<std::size_t>(channels), [&](auto bytes, std::size_t k) __attribute__((
                                                          always_inline)) {
                    using V = Lanes<T, bytes.value>;
                    using I = Lanes<std::int32_t, bytes.value>;
                    T* const in = dx + taps.in * channels + k;
                    const std::size_t out = static_cast<std::size_t>(taps.out * channels) + k;
                    V gradient;
                    load(gradient, dy + out);
                    I winner;
                    if constexpr (bytes.value == 0) {
                      winner = static_cast<I>(winners[out]);
                    } else {
                      load_taps<bytes.value>(winner, winners + out);
                    }
                    for (int i = top; i < bottom; ++i)
                      for (int j = left; j < right; ++j) {
                        T* const p = in + (i * width + j) * channels;
                        V sum{};
                        if (!only_writer) load(sum, p);
                        sum += winner == I{} + (i * pool_width + j) ? gradient : V{};
                        store(p, sum);
                      }
                  });
            });
      });
}

}  // namespace detail

template <class P>
struct Kernel<MaxPooling2DOp, BasicCpu<P>> : KernelTraits {
  using D = BasicCpu<P>;
  static constexpr std::size_t saved(const MaxPooling2DOp& op) {
    return op.out().size() * (fits_a_byte(op) ? 1 : sizeof(std::uint32_t));
  }

  [[gnu::noinline]] static void forward(const MaxPooling2DOp& op, const Io<D>& io) {
    detail::parallel_ranges(
        io.device.threads(), io.count, grain(op), [&](Slice examples, std::size_t) {
          if (!fits_a_byte(op))
            return detail::max_pool_forward<16>(op.window, examples, io.x, io.y,
                                                reinterpret_cast<std::uint32_t*>(io.saved));
          detail::with_widest_lanes([&](auto bytes) __attribute__((always_inline)) {
            detail::max_pool_forward<bytes.value>(op.window, examples, io.x, io.y,
                                                  reinterpret_cast<std::uint8_t*>(io.saved));
          });
        });
  }

  [[gnu::noinline]] static void backward(const MaxPooling2DOp& op, const Io<D>& io) {
    if (io.dx == nullptr) return;
    detail::parallel_ranges(
        io.device.threads(), io.count, grain(op), [&](Slice examples, std::size_t) {
          if (!fits_a_byte(op))
            return detail::max_pool_backward<16>(op.window, examples, io.dy, io.dx,
                                                 reinterpret_cast<const std::uint32_t*>(io.saved));
          detail::with_widest_lanes([&](auto bytes) __attribute__((always_inline)) {
            detail::max_pool_backward<bytes.value>(op.window, examples, io.dy, io.dx,
                                                   reinterpret_cast<const std::uint8_t*>(io.saved));
          });
        });
  }

 private:
  /// Larger pools are rare, and run in vectors of 16 bytes only, to be compiled once.
  static constexpr bool fits_a_byte(const MaxPooling2DOp& op) {
    return op.window.pool.height * op.window.pool.width <= 256;
  }
  static std::size_t grain(const MaxPooling2DOp& op) {
    return detail::parallel_grain(op.window.in.size());
  }
};

static_assert(HasKernel<MaxPooling2DOp, Cpu>);

}  // namespace lockstep
