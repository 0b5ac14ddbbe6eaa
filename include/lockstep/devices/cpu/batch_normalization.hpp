/// \file
/// BatchNormalization on the CPU, in loops of our own. Invariants: rows are walked in blocks that
/// stay in the first cache; a block's sums are in the device's type, those of blocks and threads in
/// double; a block's moments are taken about its own mean, so nothing cancels; equal sizes and
/// thread counts give equal bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/host/batch_normalization.hpp"

namespace lockstep {
namespace detail {

/// Rows of so many channels that are one block: 16 KiB of floats.
constexpr std::size_t rows_of_block(std::size_t channels) {
  return std::max<std::size_t>(1, 4096 / channels);
}

/// Channels [first, last) of `rows` rows: `middle`, the mean but for rounding, and the sums of
/// distances and of squared distances from it.
template <std::size_t Width, class T>
[[gnu::always_inline]] inline void block_moments(const T* x, std::size_t rows, std::size_t channels,
                                                 std::size_t first, std::size_t last, T* middle,
                                                 T* distances, T* squares) {
  using V = Lanes<T, Width>;
  const T share = T(1) / static_cast<T>(rows);
  for (std::size_t k = first; k < last; k += lanes_of<T, Width>) {
    V sum{}, sum2{}, square{}, square2{}, v, v2;
    std::size_t i = k;
    for (std::size_t row = 0; row + 2 <= rows; row += 2, i += 2 * channels) {
      load(v, x + i);
      load(v2, x + i + channels);
      sum += v;
      sum2 += v2;
    }
    if (rows % 2 != 0) {
      load(v, x + i);
      sum += v;
    }
    const V m = (sum + sum2) * share;
    sum = V{};
    sum2 = V{};
    i = k;
    for (std::size_t row = 0; row + 2 <= rows; row += 2, i += 2 * channels) {
      load(v, x + i);
      load(v2, x + i + channels);
      v -= m;
      v2 -= m;
      sum += v;
      sum2 += v2;
      square += v * v;
      square2 += v2 * v2;
    }
    if (rows % 2 != 0) {
      load(v, x + i);
      v -= m;
      sum += v;
      square += v * v;
    }
    sum += sum2;
    square += square2;
    store(middle + k, m);
    store(distances + k, sum);
    store(squares + k, square);
  }
}

/// Channels [first, last) of `rows` rows: y = (x - mean) factor + beta.
template <std::size_t Width, class T>
[[gnu::always_inline]] inline void block_normalize(const T* x, T* y, std::size_t rows,
                                                   std::size_t channels, std::size_t first,
                                                   std::size_t last, const T* mean, const T* factor,
                                                   const T* beta) {
  using V = Lanes<T, Width>;
  for (std::size_t k = first; k < last; k += lanes_of<T, Width>) {
    V m, f, b, v;
    load(m, mean + k);
    load(f, factor + k);
    load(b, beta + k);
    for (std::size_t i = k; i < rows * channels; i += channels) {
      load(v, x + i);
      v = (v - m) * f + b;
      store(y + i, v);
    }
  }
}

/// Channels [first, last) of `rows` rows: sums of dy and of dy (x - mean).
template <std::size_t Width, class T>
[[gnu::always_inline]] inline void block_sums(const T* x, const T* dy, std::size_t rows,
                                              std::size_t channels, std::size_t first,
                                              std::size_t last, const T* mean, T* of_dy,
                                              T* of_products) {
  using V = Lanes<T, Width>;
  for (std::size_t k = first; k < last; k += lanes_of<T, Width>) {
    V m, v, g, v2, g2, sum{}, sum2{}, products{}, products2{};
    load(m, mean + k);
    std::size_t i = k;
    for (std::size_t row = 0; row + 2 <= rows; row += 2, i += 2 * channels) {
      load(v, x + i);
      load(g, dy + i);
      load(v2, x + i + channels);
      load(g2, dy + i + channels);
      sum += g;
      products += g * (v - m);
      sum2 += g2;
      products2 += g2 * (v2 - m);
    }
    if (rows % 2 != 0) {
      load(v, x + i);
      load(g, dy + i);
      sum += g;
      products += g * (v - m);
    }
    sum += sum2;
    products += products2;
    store(of_dy + k, sum);
    store(of_products + k, products);
  }
}

/// Channels [first, last) of `rows` rows: dx = factor dy - slope (x - mean) - shift.
template <std::size_t Width, class T>
[[gnu::always_inline]] inline void block_gradient(const T* x, const T* dy, T* dx, std::size_t rows,
                                                  std::size_t channels, std::size_t first,
                                                  std::size_t last, const T* mean, const T* factor,
                                                  const T* slope, const T* shift) {
  using V = Lanes<T, Width>;
  for (std::size_t k = first; k < last; k += lanes_of<T, Width>) {
    V m, f, s, c, v, g;
    load(m, mean + k);
    load(f, factor + k);
    load(s, slope + k);
    load(c, shift + k);
    for (std::size_t i = k; i < rows * channels; i += channels) {
      load(v, x + i);
      load(g, dy + i);
      g = g * f - (v - m) * s - c;
      store(dx + i, g);
    }
  }
}

/// Memory of one batch size: what threads add up, and the numbers of channels in the device's type.
template <class T>
struct BatchNormalizationRoom {
  std::vector<double> replicas, threads;  // threads: moments of each
  std::vector<T> blocks;                  // sums of each thread's block: three times (channels)
  std::array<std::vector<T>, 4> channel;  // (channels)
  std::size_t scratch_bytes() const { return 0; }
};

template <class D>
struct CpuBatchNormalizationLoops {
  using T = typename D::real;
  using Op = BatchNormalizationOp;
  using Room = BatchNormalizationRoom<T>;

  static void moments(const Op& op, const Io<D>& io, double* to, Room& room) {
    const std::size_t channels = op.channels(), size = moments_size(channels);
    std::fill(room.threads.begin(), room.threads.end(), 0.0);
    each_block(op, io, [&](std::size_t at, std::size_t rows, std::size_t thread, auto&& run) {
      T* const block = room.blocks.data() + 3 * thread * channels;  // 3 (channels)
      run([=](auto bytes, std::size_t first, std::size_t last) __attribute__((always_inline)) {
        block_moments<bytes.value>(io.x + at, rows, channels, first, last, block, block + channels,
                                   block + 2 * channels);
      });
      merge_block(room.threads.data() + thread * size, rows, block, channels);
    });
    to[0] = 0;
    for (std::size_t t = 0; t * size < room.threads.size(); ++t)
      merge_moments(to, room.threads.data() + t * size, channels);
  }

  static void normalize(const Op& op, const Io<D>& io, const BatchStatistics& s, Room& room) {
    const std::size_t channels = op.channels();
    T* const mean = room.channel[0].data();    // (channels)
    T* const factor = room.channel[1].data();  // (channels)
    T* const beta = room.channel[2].data();    // (channels)
    for (std::size_t k = 0; k < channels; ++k) {
      mean[k] = static_cast<T>(s.mean[k]);
      factor[k] = static_cast<T>(gamma(op, io, k) * s.scale[k]);
      const double b = op.center ? static_cast<double>(io.w[(op.scale ? channels : 0) + k]) : 0;
      beta[k] = static_cast<T>(b - rounding(s, mean, k) * static_cast<double>(factor[k]));
    }
    each_block(op, io, [&](std::size_t at, std::size_t rows, std::size_t, auto&& run) {
      run([&](auto bytes, std::size_t first, std::size_t last) __attribute__((always_inline)) {
        block_normalize<bytes.value>(io.x + at, io.y + at, rows, channels, first, last, mean,
                                     factor, beta);
      });
    });
  }

  static void sums(const Op& op, const Io<D>& io, const BatchStatistics& s, double* of_dy,
                   double* of_products, Room& room) {
    const std::size_t channels = op.channels(), size = moments_size(channels);
    T* const mean = room.channel[0].data();  // (channels)
    for (std::size_t k = 0; k < channels; ++k) mean[k] = static_cast<T>(s.mean[k]);
    std::fill(room.threads.begin(), room.threads.end(), 0.0);
    each_block(op, io, [&](std::size_t at, std::size_t rows, std::size_t thread, auto&& run) {
      T* const block = room.blocks.data() + 3 * thread * channels;  // 2 (channels)
      run([&](auto bytes, std::size_t first, std::size_t last) __attribute__((always_inline)) {
        block_sums<bytes.value>(io.x + at, io.dy + at, rows, channels, first, last, mean, block,
                                block + channels);
      });
      double* const sum = room.threads.data() + thread * size;
      for (std::size_t k = 0; k < 2 * channels; ++k) sum[k] += static_cast<double>(block[k]);
    });
    std::fill_n(of_dy, channels, 0.0);
    std::fill_n(of_products, channels, 0.0);
    for (std::size_t t = 0; t * size < room.threads.size(); ++t)
      for (std::size_t k = 0; k < channels; ++k) {
        of_dy[k] += room.threads[t * size + k];
        of_products[k] += room.threads[t * size + channels + k];
      }
    for (std::size_t k = 0; k < channels; ++k)
      of_products[k] = (of_products[k] - rounding(s, mean, k) * of_dy[k]) * s.scale[k];
  }

  static void gradient(const Op& op, const Io<D>& io, const BatchStatistics& s,
                       const double* mean_of_dy, const double* mean_of_products, Room& room) {
    const std::size_t channels = op.channels();
    T* const mean = room.channel[0].data();    // (channels)
    T* const factor = room.channel[1].data();  // (channels)
    T* const slope = room.channel[2].data();   // (channels)
    T* const shift = room.channel[3].data();   // (channels)
    for (std::size_t k = 0; k < channels; ++k) {
      const double f = gamma(op, io, k) * s.scale[k];
      mean[k] = static_cast<T>(s.mean[k]);
      factor[k] = static_cast<T>(f);
      slope[k] = static_cast<T>(f * s.scale[k] * mean_of_products[k]);
      shift[k] =
          static_cast<T>(f * mean_of_dy[k] - rounding(s, mean, k) * static_cast<double>(slope[k]));
    }
    each_block(op, io, [&](std::size_t at, std::size_t rows, std::size_t, auto&& run) {
      run([&](auto bytes, std::size_t first, std::size_t last) __attribute__((always_inline)) {
        block_gradient<bytes.value>(io.x + at, io.dy + at, io.dx + at, rows, channels, first, last,
                                    mean, factor, slope, shift);
      });
    });
  }

 private:
  static double gamma(const Op& op, const Io<D>& io, std::size_t k) {
    return op.scale ? static_cast<double>(io.w[k]) : 1.0;
  }

  /// What a mean lost in the device's type: as much as a deviation if that is small beside it.
  static double rounding(const BatchStatistics& s, const T* mean, std::size_t k) {
    return s.mean[k] - static_cast<double>(mean[k]);
  }

  /// As merge_moments, of a block.
  static void merge_block(double* into, std::size_t rows, const T* block, std::size_t channels) {
    const double n = static_cast<double>(rows), all = into[0] + n, share = n / all;
    for (std::size_t k = 0; k < channels; ++k) {
      const double off = static_cast<double>(block[channels + k]) / n,
                   mean = static_cast<double>(block[k]) + off,
                   old = into[0] > 0 ? into[1 + k] : mean,
                   squares = static_cast<double>(block[2 * channels + k]) - n * off * off;
      into[1 + k] = old + (mean - old) * share;
      into[1 + channels + k] += squares + (mean - old) * (mean - old) * into[0] * share;
    }
    into[0] = all;
  }

  /// body(first element, rows, thread, run) for each block; run(loop) calls the loop on all
  /// channels, in vectors where the processor has them.
  template <class Body>
  static void each_block(const Op& op, const Io<D>& io, const Body& body) {
    const std::size_t channels = op.channels(), block = rows_of_block(channels);
    const bool vectors = has_vectors();
    parallel_ranges(
        io.device.threads(), io.count * op.rows(), parallel_grain(channels),
        [&](Slice rows, std::size_t thread) {
          for (std::size_t row = rows.first; row < rows.first + rows.count; row += block)
            body(row * channels, std::min(block, rows.first + rows.count - row), thread,
                 [&](const auto& loop) {
                   for_channels<T>(
                       vectors, static_cast<int>(channels),
                       [&](auto bytes, int first, int last) __attribute__((always_inline)) {
                         loop(bytes, static_cast<std::size_t>(first),
                              static_cast<std::size_t>(last));
                       });
                 });
        });
  }
};

}  // namespace detail

template <class P>
struct Kernel<BatchNormalizationOp, BasicCpu<P>>
    : detail::BatchNormalizationKernel<BasicCpu<P>,
                                       detail::CpuBatchNormalizationLoops<BasicCpu<P>>> {
  using T = typename BasicCpu<P>::real;
  using Prepared = detail::BatchNormalizationRoom<T>;

  static Prepared prepare(const BatchNormalizationOp& op, typename BasicCpu<P>::Context& context,
                          std::size_t) {
    const std::size_t channels = op.channels();
    const auto threads = static_cast<std::size_t>(context.threads());
    Prepared room;
    room.threads.resize(threads * detail::moments_size(channels));
    room.blocks.resize(threads * 3 * channels);
    for (auto& numbers : room.channel) numbers.resize(channels);
    return room;
  }
};

static_assert(HasKernel<BatchNormalizationOp, Cpu>);

}  // namespace lockstep
