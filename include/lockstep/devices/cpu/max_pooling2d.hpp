/// \file
/// MaxPooling2D on the CPU, in hand-written loops: oneDNN 2.6 is many times slower on NHWC images
/// (benchmarks/layers.cpp). Invariants: forward saves the index of the winning tap, in one byte per
/// output if the window has at most 256 taps, otherwise in four; among equal maxima the first in
/// row-major order wins, and the last NaN wins over all others.
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
#include "lockstep/layers/pooling/max_pooling2d.hpp"

namespace lockstep {
namespace detail {

// Winners are packed from 32-bit lanes to bytes by shuffles, as g++ 12 compiles
// __builtin_convertvector element by element.
static_assert(std::endian::native == std::endian::little,
              "lockstep::Cpu: max pooling packs its winners for little-endian machines; use "
              "Reference<float> on this one");

/// Stores the winning taps of one vector of channels, one byte each:
///
///     lanes (int32)   | t0 0 0 0 | t1 0 0 0 | t2 0 0 0 | ...
///     memory          | t0 | t1 | t2 | ...
template <std::size_t Width>
[[gnu::always_inline, gnu::no_instrument_function]] inline void store_winners(
    std::byte* p, const Lanes<std::int32_t, Width>& taps) {
  Lanes<std::uint8_t, Width> bytes;
  std::memcpy(&bytes, &taps, sizeof bytes);
  [&]<std::size_t... I>(std::index_sequence<I...>)
      __attribute__((always_inline, no_instrument_function)) {
        store(p, __builtin_shufflevector(bytes, bytes, (4 * I)...));
      }(std::make_index_sequence<Width / 4>{});
}
/// Loads the winning taps of one vector of channels into 32-bit lanes.
template <std::size_t Width>
[[gnu::always_inline, gnu::no_instrument_function]] inline void load_winners(
    Lanes<std::int32_t, Width>& taps, const std::byte* p) {
  using Pairs = Lanes<std::uint64_t, Width>;
  std::uint64_t packed = 0;
  std::memcpy(&packed, p, Width / 4);
  Pairs shift{};
  for (std::size_t i = 0; i < Width / 8; ++i) shift[i] = 16 * i;
  const Pairs two = (Pairs{} + packed) >> shift;  // low 16 bits: the winners of this pair of lanes
  const Pairs lanes = (two & 0xFF) | ((two & 0xFF00) << 24);
  std::memcpy(&taps, &lanes, sizeof taps);
}

/// Calls f(first row, last row, first column, last column) for a window; with constants if it is a
/// whole 2 x 2 window, so that the compiler unrolls the loop over its taps.
template <std::size_t Width, class F>
[[gnu::always_inline, gnu::no_instrument_function]] inline void with_taps_of(
    const PoolingTaps& taps, const F& f) {
  if (Width > 0 && taps.first_row == 0 && taps.last_row == 2 && taps.first_column == 0 &&
      taps.last_column == 2)
    f(0, 2, 0, 2);
  else
    f(taps.first_row, taps.last_row, taps.first_column, taps.last_column);
}

/// The loop of both passes over windows and channels [first, last): calls visit(top, bottom, left,
/// right, in, out) for each vector of channels of each window, where `in` is the offset of tap
/// (0, 0) in x and `out` the offset in y.
template <std::size_t Width, class T, class Visit>
[[gnu::always_inline, gnu::no_instrument_function]] inline void for_each_pool(
    const Pooling2DWindow& window, Slice examples, int first, int last, const Visit& visit) {
  const int channels = window.in[2];
  for_each_window(
      window, examples,
      [&](const PoolingTaps& taps) __attribute__((always_inline, no_instrument_function)) {
        with_taps_of<Width>(taps, [&](int top, int bottom, int left, int right) __attribute__((
                                      always_inline, no_instrument_function)) {
          for (int k = first; k < last; k += lanes_of<T, Width>)
            visit(top, bottom, left, right, taps.in * channels + k, taps.out * channels + k);
        });
      });
}

/// Writes y and the winners for channels [first, last) of `examples`.
template <std::size_t Width, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void max_pool_forward(
    const Pooling2DWindow& window, bool bytes_suffice, Slice examples, int first, int last,
    const A* x, A* y, std::byte* winners) {
  using T = typename ComputedIn<A>::type;
  using I = Lanes<std::int32_t, Width>;
  const int width = window.in[1], pool_width = window.pool.width;
  const std::ptrdiff_t channels = window.in[2];
  for_each_pool<Width, T>(
      window, examples, first, last,
      [&](int top, int bottom, int left, int right, std::ptrdiff_t in, std::ptrdiff_t out)
          __attribute__((always_inline, no_instrument_function)) {
            Lanes<T, Width> best, v;
            load(best, x + in + (top * width + left) * channels);
            I winner = I{} + (top * pool_width + left);
            for (int i = top; i < bottom; ++i)
              for (int j = left; j < right; ++j) {
                load(v, x + in + (i * width + j) * channels);
                const auto better = (v > best) | (v != v);
                best = better ? v : best;
                winner = better ? I{} + (i * pool_width + j) : winner;
              }
            store(y + out, best);
            if constexpr (Width > 0)
              store_winners<Width>(winners + out, winner);
            else if (bytes_suffice)
              winners[out] = static_cast<std::byte>(winner);
            else
              store(winners + 4 * out, winner);
          });
}

/// Adds dy to dx at the winners, or stores it if each input pixel has only one writer. The type of
/// dx may differ from that of dy.
template <std::size_t Width, class A, class To>
[[gnu::always_inline, gnu::no_instrument_function]] inline void max_pool_backward(
    const Pooling2DWindow& window, bool bytes_suffice, bool only_writer, Slice examples, int first,
    int last, const A* dy, To* dx, const std::byte* winners) {
  using T = typename ComputedIn<A>::type;
  using V = Lanes<T, Width>;
  using I = Lanes<std::int32_t, Width>;
  const int width = window.in[1], pool_width = window.pool.width;
  const std::ptrdiff_t channels = window.in[2];
  for_each_pool<Width, T>(
      window, examples, first, last,
      [&](int top, int bottom, int left, int right, std::ptrdiff_t in, std::ptrdiff_t out)
          __attribute__((always_inline, no_instrument_function)) {
            V gradient;
            I winner;
            load(gradient, dy + out);
            if constexpr (Width > 0)
              load_winners<Width>(winner, winners + out);
            else if (bytes_suffice)
              winner = static_cast<I>(winners[out]);
            else
              load(winner, winners + 4 * out);
            for (int i = top; i < bottom; ++i)
              for (int j = left; j < right; ++j) {
                To* const p = dx + in + (i * width + j) * channels;
                V sum{};
                if (!only_writer) load(sum, p);
                sum += winner == I{} + (i * pool_width + j) ? gradient : V{};
                store(p, sum);
              }
          });
}

}  // namespace detail

template <class P>
struct Kernel<MaxPooling2DOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using A = ActivationOf<D>;
  using T = typename detail::ComputedIn<A>::type;  // short vectors only: winners are packed bytes
  using Prepared = detail::PoolingScratch<A>;
  static constexpr std::size_t saved(const MaxPooling2DOp& op) {
    return op.out().size() * (bytes_suffice(op) ? 1 : sizeof(std::int32_t));
  }

  static Prepared prepare(const MaxPooling2DOp& op, typename D::Context& context, std::size_t) {
    return {op.window, context.threads()};
  }
  static void forward(const MaxPooling2DOp& op, const Io<D>& io, Prepared&) {
    detail::parallel_ranges(
        io.device.threads(), io.step.count, grain(op), [&](Slice examples, std::size_t) {
          detail::for_channels<T>(use_vectors(op), op.window.in[2],
                                  [&](auto bytes, int first, int last)
                                      __attribute__((always_inline, no_instrument_function)) {
                                        detail::max_pool_forward<bytes.value>(
                                            op.window, bytes_suffice(op), examples, first, last,
                                            io.x[0], io.y, io.saved);
                                      });
        });
  }

  static void backward(const MaxPooling2DOp& op, const Io<D>& io, Prepared& sums) {
    if (io.dx[0] == nullptr) return;
    detail::pool_backward<A>(
        op.window, io, sums, [&](std::size_t n, Slice examples, bool only_writer, auto* dx) {
          const A* const dy = io.dy + n * op.out().size();
          const std::byte* const winners = io.saved + n * saved(op);
          detail::for_channels<T>(use_vectors(op), op.window.in[2],
                                  [&](auto bytes, int first, int last)
                                      __attribute__((always_inline, no_instrument_function)) {
                                        detail::max_pool_backward<bytes.value>(
                                            op.window, bytes_suffice(op), only_writer, examples,
                                            first, last, dy, dx, winners);
                                      });
        });
  }

 private:
  /// Whether a tap index fits into a byte. Larger pools are rare, and run without vectors.
  static constexpr bool bytes_suffice(const MaxPooling2DOp& op) {
    return op.window.pool.height * op.window.pool.width <= 256;
  }
  static bool use_vectors(const MaxPooling2DOp& op) {
    return bytes_suffice(op) && detail::has_vectors();
  }
  static std::size_t grain(const MaxPooling2DOp& op) {
    return detail::parallel_grain(op.window.in.size());
  }
};

static_assert(HasKernel<MaxPooling2DOp, Cpu>);

}  // namespace lockstep
