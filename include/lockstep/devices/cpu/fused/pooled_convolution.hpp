/// \file
/// Convolution over images of few channels, ReLU and 2 x 2 max pooling in one pass of hand-written
/// loops, so that the convolution's output is never stored (benchmarks/fused.cpp). Invariants:
/// among equal maxima the first in row-major order wins and NaN wins over all others, as in max
/// pooling alone; a window without a positive element or NaN has no winner, which makes a separate
/// ReLU mask unnecessary; examples are summed in chunks that do not depend on the number of threads,
/// hence neither do the gradients' bits. Images and kernels that cannot make a NaN skip the
/// comparisons for it, which would double the time of forward. A processor without the vectors of lanes.hpp runs plain loops: an alternative path through
/// oneDNN would add 12 % to the compile time of every program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep::detail {

/// The passes of one Conv2DOp under a 2 x 2 pool. Filters are processed in pairs of vectors.
///
///     forward    registers hold the four convolutions of each window of a group
///                  | max over the four, compared with 0
///                y, and a winner of 4 bits per window and filter: 0 to 3, or no_winner
///     winners    one vector per group of windows; in each 32-bit lane a filter:
///                | ... | window 1: second, first vector | window 0: second, first vector |
///     quads      for each pixel the four pixels of the window that begins there, side by side
///     backward   registers hold the sums of nine kernel taps; each filter selects its winner's
///                pixel from the quad, so that no products with zero are computed
template <class T>
class PooledConvolution {
 public:
  /// For an op that the kernel fits. `bytes`: vector length of the processor; 0 selects the plain loops.
  [[gnu::cold]] PooledConvolution(const Conv2DOp& op, int threads, std::size_t bytes)
      : op_(op), threads_(static_cast<std::size_t>(threads)), bytes_(bytes) {
    if (static_cast<std::size_t>(op.filters) % (2 * bytes / sizeof(T) + (bytes == 0)) != 0)
      bytes_ = vector_bytes;
    const auto channels = op.channels();
    height_ = op.in[0] + op.rows().before() + op.rows().after();
    width_ = op.in[1] + op.columns().before() + op.columns().after();
    const Shape out = op.out();
    rows_ = out[0] / 2;
    columns_ = out[1] / 2;
    down_ = static_cast<std::ptrdiff_t>(op.strides.height) * width_ * channels;
    right_ = static_cast<std::ptrdiff_t>(op.strides.width) * channels;
    taps_ = std::vector<std::size_t>(
        static_cast<std::size_t>(op.kernel.height * op.kernel.width * channels));
    std::size_t* tap = taps_.data();
    for (int i = 0; i < op.kernel.height; ++i)
      for (int j = 0; j < op.kernel.width; ++j)
        for (int c = 0; c < channels; ++c)
          *tap++ = static_cast<std::size_t>(
              (i * op.dilation.height * width_ + j * op.dilation.width) * channels + c);
  }
  std::size_t scratch_bytes() const {
    return threads_ * (padded_size() + quads_size()) * sizeof(T) +
           max_chunks * sums_size() * sizeof(double);
  }

  /// Reads x (count, in), kernel (taps, filters) and bias (filters) or null; writes y (count, rows,
  /// columns, filters) and the winners.
  void forward(std::size_t count, const T* x, const T* kernel, const T* bias, T* y,
               std::byte* winners, std::byte* scratch) const {
    const bool is_moderate =
        are_moderate(1, kernel, op_.kernel_size()) &&
        (bias == nullptr || are_moderate(1, bias, static_cast<std::size_t>(op_.filters)));
    parallel_ranges(static_cast<int>(threads_), count, 1, [&](Slice examples, std::size_t index) {
      T* const padded = reinterpret_cast<T*>(scratch) + index * padded_size();
      for (std::size_t n = examples.first; n < examples.first + examples.count; ++n) {
        const T* const image = with_border(x + n * op_.in.size(), padded);
        T* const result = y + n * out_size();
        if (bytes_ == 0)
          plain_forward(image, kernel, bias, result, winners + n * out_size());
        else if (is_moderate && are_moderate(1, x + n * op_.in.size(), op_.in.size()))
          run_with_vectors_of(
              bytes_, [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
                image_forward<bytes.value>(image, kernel, bias, result,
                                           winners_of<bytes.value>(winners, n));
              });
        else
          run_with_vectors_of(
              bytes_, [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
                careful_forward<bytes.value>(image, kernel, bias, result,
                                             winners_of<bytes.value>(winners, n));
              });
      }
    });
  }

  /// Reads x, dy (shaped like y) and the winners; writes dw (taps, filters) and db (filters),
  /// unless db is null.
  void backward(std::size_t count, const T* x, const T* dy, const std::byte* winners, T* dw, T* db,
                std::byte* scratch) const {
    double* const sums = reinterpret_cast<double*>(reinterpret_cast<T*>(scratch) +
                                                   threads_ * (padded_size() + quads_size()));
    const std::size_t chunks = std::min(count, max_chunks);
    parallel_ranges(static_cast<int>(threads_), chunks, 1, [&](Slice mine, std::size_t index) {
      T* const padded = reinterpret_cast<T*>(scratch) + index * (padded_size() + quads_size());
      for (std::size_t c = mine.first; c < mine.first + mine.count; ++c) {
        double* const sum = sums + c * sums_size();
        std::fill_n(sum, sums_size(), 0.0);
        const Slice examples = slice_of(count, chunks, c);
        for (std::size_t n = examples.first; n < examples.first + examples.count; ++n) {
          const T* const image = with_border(x + n * op_.in.size(), padded);
          const T* const gradient = dy + n * out_size();
          if (bytes_ == 0)
            plain_backward(image, gradient, winners + n * out_size(), sum);
          else
            run_with_vectors_of(
                bytes_, [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
                  image_backward<bytes.value>(image, gradient, winners_of<bytes.value>(winners, n),
                                              sum, padded + padded_size());
                });
        }
      }
    });
    const auto filters = static_cast<std::size_t>(op_.filters), weights = op_.kernel_size();
    const auto add_up = [&](std::size_t first, std::size_t size, T* to) {
      for (std::size_t i = 0; i < size; ++i) {
        double sum = 0;
        for (std::size_t c = 0; c < chunks; ++c) sum += sums[c * sums_size() + first + i];
        to[i] = static_cast<T>(sum);
      }
    };
    add_up(0, weights, dw);
    if (db != nullptr) add_up(weights, filters, db);
  }

 private:
  static constexpr std::size_t max_chunks = 16;  // of the batch, each with its own sums
  /// Taps whose sums are held in registers. Nine leave AVX2 just enough registers for the operands,
  /// and cover a 3 x 3 kernel over one channel.
  static constexpr std::size_t taps_at_once = 9;
  /// Terms that a float accumulates, for the bias and the kernel gradient, before the partial sum
  /// is added in double.
  static constexpr int max_bias_terms = 32, max_kernel_terms = 128;
  /// Windows that forward computes together: one group, which shares a vector of winners.
  template <std::size_t Width>
  static constexpr int windows_at_once = Width == 64 ? 3 : 1;
  /// Vectors of a pair that backward processes together.
  template <std::size_t Width>
  static constexpr int backward_vectors = Width == 64 ? 2 : 1;
  template <std::size_t Width>
  static constexpr int lanes = lanes_of<T, Width>;
  template <std::size_t Width>
  using Winners = Lanes<std::int32_t, Width>;

  std::size_t out_size() const {
    return static_cast<std::size_t>(rows_) * static_cast<std::size_t>(columns_) *
           static_cast<std::size_t>(op_.filters);
  }
  std::size_t sums_size() const {
    return op_.kernel_size() + static_cast<std::size_t>(op_.filters);
  }
  bool has_border() const { return height_ != op_.in[0] || width_ != op_.in[1]; }
  /// Elements of a zero-padded image, in whole cache lines to avoid false sharing; 0 if the
  /// convolution has no padding.
  std::size_t padded_size() const {
    if (!has_border()) return 0;
    return (static_cast<std::size_t>(height_ * width_ * op_.channels()) + 31) / 16 * 16;
  }

  /// Elements of the quads: four for each element of the padded image.
  std::size_t quads_size() const {
    return 4 * ((static_cast<std::size_t>(height_ * width_ * op_.channels()) + 31) / 16 * 16);
  }

  /// Groups, and so vectors of winners, in a row of windows.
  template <std::size_t Width>
  std::ptrdiff_t groups() const {
    return columns_ / windows_at_once<Width> + columns_ % windows_at_once<Width>;
  }
  /// The first winner of an example.
  template <std::size_t Width, class Byte>
  auto winners_of(Byte* winners, std::size_t example) const {
    const std::size_t pairs = static_cast<std::size_t>(op_.filters / (2 * lanes<Width>));
    return winners + example * pairs * static_cast<std::size_t>(rows_ * groups<Width>()) * Width;
  }

  /// Returns the zero-padded image, in `padded`; x itself if there is no padding.
  [[gnu::noinline]] const T* with_border(const T* x, T* padded) const {
    if (!has_border()) return x;
    std::fill_n(padded, padded_size(), T(0));
    const int top = op_.rows().before(), left = op_.columns().before(),
              row = op_.in[1] * op_.channels();
    for (int r = 0; r < op_.in[0]; ++r)
      std::copy_n(x + r * row, row, padded + ((r + top) * width_ + left) * op_.channels());
    return padded;
  }

  /// Calls visit(Constant<N>, c) for groups of windows [c, c + N) of a row.
  template <std::size_t Width, class Visit>
  [[gnu::always_inline, gnu::no_instrument_function]] static inline void for_each_group(
      int columns, const Visit& visit) {
    constexpr int N = windows_at_once<Width>;
    int c = 0;
    for (; c + N <= columns; c += N) visit(Constant<N>{}, c);
    if constexpr (N > 1)
      for (; c < columns; ++c) visit(Constant<1>{}, c);
  }

  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void image_forward(
      const T* x, const T* kernel, const T* bias, T* y, std::byte* winners) const {
    const std::ptrdiff_t filters = op_.filters;
    for (int f = 0; f < filters; f += 2 * lanes<Width>)
      for (int r = 0; r < rows_; ++r)
        for_each_group<Width>(
            columns_, [&](auto n, int c) __attribute__((always_inline, no_instrument_function)) {
              forward_windows<Width, n.value>(
                  x + 2 * (r * down_ + c * right_), kernel + f, bias == nullptr ? bias : bias + f,
                  y + (static_cast<std::ptrdiff_t>(r) * columns_ + c) * filters + f, winners);
              winners += Width;
            });
  }

  /// y and winners of N adjacent windows, for two vectors of filters.
  template <std::size_t Width, int N>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void forward_windows(
      const T* x, const T* kernel, const T* bias, T* y, std::byte* winners) const {
    using V = Lanes<T, Width>;
    const std::ptrdiff_t filters = op_.filters;
    V first{}, second{};
    if (bias != nullptr) {
      load(first, bias);
      load(second, bias + lanes<Width>);
    }
    V sum[std::size_t{N}][4][2];
#pragma GCC unroll 3
    for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) {
        sum[n][p][0] = first;
        sum[n][p][1] = second;
      }
    for (const std::size_t tap : taps_) {
      load(first, kernel);
      load(second, kernel + lanes<Width>);
      kernel += filters;
      // An array, not a conditional: g++ 12 with -fsanitize=shift miscompiles the conditional.
      const T* const row[2] = {x + tap, x + tap + down_};
#pragma GCC unroll 3
      for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {
          const T v = row[p / 2][(2 * n + p % 2) * right_];
          sum[n][p][0] += v * first;
          sum[n][p][1] += v * second;
        }
    }
    Winners<Width> all{};
#pragma GCC unroll 3
    for (int n = N - 1; n >= 0; --n)
#pragma GCC unroll 2
      for (int h = 1; h >= 0; --h) {
        V best{};
        Winners<Width> winner = Winners<Width>{} + no_winner;
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {
          const auto better = sum[n][p][h] > best;
          best = better ? sum[n][p][h] : best;
          winner = better ? Winners<Width>{} + p : winner;
        }
        all = all << 4 | winner;
        store(y + n * filters + h * lanes<Width>, best);
      }
    store(winners, all);
  }

  /// As image_forward, with comparisons that propagate NaN, one convolution after the other.
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void careful_forward(
      const T* x, const T* kernel, const T* bias, T* y, std::byte* winners) const {
    using V = Lanes<T, Width>;
    const std::ptrdiff_t filters = op_.filters;
    for (int f = 0; f < filters; f += 2 * lanes<Width>)
      for (int r = 0; r < rows_; ++r)
        for_each_group<Width>(columns_, [&](auto count, int c) __attribute__((
                                            always_inline, no_instrument_function)) {
          Winners<Width> all{};
          for (int i = 2 * count.value - 1; i >= 0; --i) {
            const std::ptrdiff_t column = c + i / 2, filter = f + i % 2 * lanes<Width>;
            V best{};
            Winners<Width> winner = Winners<Width>{} + no_winner;
            for (int p = 0; p < 4; ++p) {
              const T* const pixel =
                  x + 2 * (r * down_ + column * right_) + p % 2 * right_ + p / 2 * down_;
              const T* weights = kernel + filter;
              V sum{}, weight;
              if (bias != nullptr) load(sum, bias + filter);
              for (const std::size_t tap : taps_) {
                load(weight, weights);
                weights += filters;
                sum += pixel[tap] * weight;
              }
              winner = sum > best ? Winners<Width>{} + p : winner;
              best = sum > best ? sum : best;
              winner = sum != sum ? Winners<Width>{} + p : winner;
              best = sum != sum ? sum : best;
            }
            all = all << 4 | winner;
            store(y + (r * std::ptrdiff_t{columns_} + column) * filters + filter, best);
          }
          store(winners, all);
          winners += Width;
        });
  }

  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void image_backward(
      const T* x, const T* dy, const std::byte* winners, double* sums, T* quads) const {
    const std::ptrdiff_t filters = op_.filters, row = groups<Width>() * std::ptrdiff_t{Width};
    make_quads<Width>(x, quads);
    for (int f = 0; f < filters; f += 2 * lanes<Width>) {
      for (int h = 0; h < 2; h += backward_vectors<Width>)
        for (std::size_t tap = 0; tap < taps_.size(); tap += taps_at_once)
          add_taps<Width>(quads, dy + f, winners, tap, h, sums + f);
      winners += rows_ * row;
    }
  }

  /// quads[4 i ...] = pixels i, i + right, i + down, i + down + right of x: a 4-way interleave.
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void make_quads(const T* x,
                                                                             T* quads) const {
    using V = Lanes<T, Width>;
    const std::ptrdiff_t pixels = height_ * width_ * op_.channels() - down_ - right_;
    std::ptrdiff_t i = 0;
    for (; i + lanes<Width> <= pixels; i += lanes<Width>) {
      V a, b, c, d;
      load(a, x + i);
      load(b, x + i + right_);
      load(c, x + i + down_);
      load(d, x + i + down_ + right_);
      [&]<std::size_t... I>(std::index_sequence<I...>)
          __attribute__((always_inline, no_instrument_function)) {
            constexpr std::size_t n = sizeof...(I), h = n / 2;
            // Interleaves single elements of two vectors, then pairs of elements.
            const V ab = __builtin_shufflevector(a, b, (I / 2 + I % 2 * n)...);
            const V cd = __builtin_shufflevector(c, d, (I / 2 + I % 2 * n)...);
            const V ab2 = __builtin_shufflevector(a, b, (h + I / 2 + I % 2 * n)...);
            const V cd2 = __builtin_shufflevector(c, d, (h + I / 2 + I % 2 * n)...);
            a = __builtin_shufflevector(ab, cd, (I / 4 * 2 + I % 2 + I % 4 / 2 * n)...);
            b = __builtin_shufflevector(ab, cd, (h + I / 4 * 2 + I % 2 + I % 4 / 2 * n)...);
            c = __builtin_shufflevector(ab2, cd2, (I / 4 * 2 + I % 2 + I % 4 / 2 * n)...);
            d = __builtin_shufflevector(ab2, cd2, (h + I / 4 * 2 + I % 2 + I % 4 / 2 * n)...);
          }(std::make_index_sequence<lanes<Width>>{});
      store(quads + 4 * i, a);
      store(quads + 4 * i + lanes<Width>, b);
      store(quads + 4 * i + 2 * lanes<Width>, c);
      store(quads + 4 * i + 3 * lanes<Width>, d);
    }
    for (; i < pixels; ++i)
      for (int p = 0; p < 4; ++p) quads[4 * i + p] = x[i + p % 2 * right_ + p / 2 * down_];
  }

  /// Adds the products of taps [tap, tap + taps_at_once) for the vectors of the pair from `half`
  /// on, and the bias gradient along with the first tap. Indices beyond the last tap repeat it and
  /// discard the sum.
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void add_taps(const T* x, const T* dy,
                                                                           const std::byte* winners,
                                                                           std::size_t tap,
                                                                           int half,
                                                                           double* sums) const {
    using V = Lanes<T, Width>;
    constexpr std::size_t vectors = backward_vectors<Width>;
    const std::ptrdiff_t filters = op_.filters;
    V sum[taps_at_once][vectors] = {}, bias_sum[vectors] = {};
    Winners<Width> all{};
    const T* at[taps_at_once];
    for (std::size_t t = 0; t < taps_at_once; ++t)
      at[t] = x + 4 * taps_[std::min(tap + t, taps_.size() - 1)];
    const auto add = [&](std::size_t row, V(&values)[vectors])
                         __attribute__((always_inline, no_instrument_function)) {
#pragma GCC unroll 2
                           for (std::size_t v = 0; v < vectors; ++v) {
                             add_lanes<T>(sums + static_cast<std::ptrdiff_t>(row) * filters +
                                              (half + static_cast<int>(v)) * lanes<Width>,
                                          values[v]);
                             values[v] = V{};
                           }
                         };
    int bias_terms = 0, terms = 0;
    for (int r = 0; r < rows_; ++r)
      for (int first = 0, left = 0; first < columns_; first += max_bias_terms) {
        const int last = std::min(first + max_bias_terms, columns_);
        for (int c = first; c < last; ++c, --left) {
          if (left == 0) {
            load(all, winners);
            winners += Width;
            left = columns_ - c < windows_at_once<Width> ? 1 : windows_at_once<Width>;
          }
          add_window<Width>(at, 8 * (r * down_ + c * right_), dy, all, half, sum, bias_sum);
          dy += filters;
          all >>= 8;
        }
        const bool is_end = last == columns_ && r + 1 == rows_;
        const auto is_full = [&](int& count, int most) {
          count += last - first;
          if (!is_end && count + std::min(columns_, max_bias_terms) <= most) return false;
          count = 0;
          return true;
        };
        if (tap == 0 && is_full(bias_terms, max_bias_terms)) add(taps_.size(), bias_sum);
        if (!is_full(terms, max_kernel_terms)) continue;
        // Copied first: an array indexed by a loop that is not unrolled cannot stay in registers.
        V total[taps_at_once][vectors];
#pragma GCC unroll 2
        for (std::size_t v = 0; v < vectors; ++v)
#pragma GCC unroll 9
          for (std::size_t t = 0; t < taps_at_once; ++t) {
            total[t][v] = sum[t][v];
            sum[t][v] = V{};
          }
        for (std::size_t t = 0; t < taps_at_once && tap + t < taps_.size(); ++t)
          add(tap + t, total[t]);
      }
  }

  /// Adds the products of one window at offset `in`. The lowest bits of `all` are its winners.
  template <std::size_t Width, std::size_t Vectors>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void add_window(
      const T* const (&at)[taps_at_once], std::ptrdiff_t in, const T* dy, const Winners<Width>& all,
      int half, Lanes<T, Width> (&sum)[taps_at_once][Vectors],
      Lanes<T, Width> (&bias_sum)[Vectors]) const {
    using V = Lanes<T, Width>;
    V gradient[Vectors];
    Winners<Width> winner[Vectors];  // arbitrary where there is no winner: the gradient is 0
#pragma GCC unroll 2
    for (std::size_t v = 0; v < Vectors; ++v) {
      load(gradient[v], dy + (half + static_cast<int>(v)) * lanes<Width>);
      const Winners<Width> nibble = all >> (4 * (half + static_cast<std::int32_t>(v)));
      winner[v] = nibble & 3;
      gradient[v] = (nibble & no_winner) != 0 ? V{} : gradient[v];
      bias_sum[v] += gradient[v];
    }
#pragma GCC unroll 9
    for (std::size_t t = 0; t < taps_at_once; ++t)
#pragma GCC unroll 2
      for (std::size_t v = 0; v < Vectors; ++v) {
        V pixel;
        choose(pixel, at[t] + in, winner[v]);
        sum[t][v] += pixel * gradient[v];
      }
  }

  /// Forward without vectors; a winner takes one byte.
  [[gnu::noinline]] void plain_forward(const T* x, const T* kernel, const T* bias, T* y,
                                       std::byte* winners) const {
    for_each_element([&](std::ptrdiff_t in, std::size_t filter) {
      T best = 0;
      *winners = static_cast<std::byte>(no_winner);
      for (int p = 0; p < 4; ++p) {
        const T* const pixel = x + in + p % 2 * right_ + p / 2 * down_;
        const T* k = kernel + filter;
        T sum = bias == nullptr ? T(0) : bias[filter];
        for (const std::size_t tap : taps_) {
          sum += pixel[tap] * *k;
          k += op_.filters;
        }
        if (!(sum > best) && !is_nan(sum)) continue;
        best = sum;
        *winners = static_cast<std::byte>(p);
      }
      *y++ = best;
      ++winners;
    });
  }
  /// Backward without vectors, with the winners of plain_forward.
  [[gnu::noinline]] void plain_backward(const T* x, const T* dy, const std::byte* winners,
                                        double* sums) const {
    for_each_element([&](std::ptrdiff_t in, std::size_t filter) {
      const T gradient = *dy++;
      const auto p = static_cast<std::int32_t>(*winners++);
      if (p == no_winner) return;
      const T* const pixel = x + in + p % 2 * right_ + p / 2 * down_;
      double* sum = sums + filter;
      for (const std::size_t tap : taps_) {
        *sum += static_cast<double>(pixel[tap]) * static_cast<double>(gradient);
        sum += op_.filters;
      }
      *sum += static_cast<double>(gradient);  // the bias sums follow those of the taps
    });
  }
  /// Calls visit(first pixel of the window, filter) for each output element of an example.
  template <class Visit>
  void for_each_element(const Visit& visit) const {
    for (int r = 0; r < rows_; ++r)
      for (int c = 0; c < columns_; ++c)
        for (std::size_t f = 0; f < static_cast<std::size_t>(op_.filters); ++f)
          visit(2 * (r * down_ + c * right_), f);
  }

  static constexpr std::int32_t no_winner = 4;

  Conv2DOp op_{};
  std::size_t threads_, bytes_;
  int height_ = 0, width_ = 0;           // of the padded image
  int rows_ = 0, columns_ = 0;           // of y
  std::ptrdiff_t down_ = 0, right_ = 0;  // strides of the convolution in the padded image, elements
  std::vector<std::size_t> taps_;        // offsets in the padded image, in the kernel's order
};

}  // namespace lockstep::detail
