/// \file
/// Weight gradient of a convolution over images of 1 to 4 channels, in a hand-written loop. On a
/// first layer oneDNN does too little arithmetic per element of dy that it loads
/// (benchmarks/layers.cpp: 2 to 5 times slower). Invariants: each thread sums its own examples, and
/// the threads' sums are added in thread order; the mask of a ReLU after the convolution is applied
/// while dy is read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep::detail {

/// dw and db of one Conv2DOp. Scratch of each thread, in whole cache lines:
///
///     | sums of dw (taps, filters) and db (filters), double | zero-padded image, if padding |
template <class T>
class FewChannelsGradient {
 public:
  /// Whether this loop applies and is faster than oneDNN.
  static bool fits(const Conv2DOp& op) {
    return op.groups == 1 && op.channels() <= 4 && op.filters % 8 == 0 && has_vectors();
  }

  FewChannelsGradient() = default;
  FewChannelsGradient(const Conv2DOp& op, int threads)
      : threads_(static_cast<std::size_t>(threads)) {
    height_ = op.in[0] + op.rows().before() + op.rows().after();
    width_ = op.in[1] + op.columns().before() + op.columns().after();
    for (int i = 0; i < op.kernel.height; ++i)
      for (int j = 0; j < op.kernel.width; ++j)
        for (int c = 0; c < op.channels(); ++c)
          taps_.push_back(
              (i * op.dilation.height * width_ + j * op.dilation.width) * op.channels() + c);
  }
  explicit operator bool() const { return !taps_.empty(); }
  std::size_t scratch_bytes(const Conv2DOp& op) const {
    return threads_ * thread_size(op) * sizeof(T);
  }

  /// Inputs: x (count, in), dy and y (count, out); y is null if there is no ReLU. Writes dw (taps,
  /// filters) and db (filters), unless db is null.
  void operator()(const Conv2DOp& op, std::size_t count, const T* x, const T* dy, const T* y, T* dw,
                  T* db, T* scratch) const {
    const std::size_t sums = sums_size(op);
    const auto sums_of = [&](std::size_t thread) {
      return reinterpret_cast<double*>(scratch + thread * thread_size(op));
    };
    for (std::size_t t = 0; t < threads_; ++t) std::fill_n(sums_of(t), sums, 0.0);
    parallel_ranges(static_cast<int>(threads_), count, 1, [&](Slice examples, std::size_t index) {
      double* const mine = sums_of(index);
      T* const padded = reinterpret_cast<T*>(mine + sums);
      run_with_vectors_of(vectors(op), [&](auto bytes) __attribute__((always_inline,
                                                                      no_instrument_function)) {
        for (std::size_t n = examples.first; n < examples.first + examples.count; ++n)
          add_example<bytes.value>(op, x + n * op.in.size(), dy + n * op.out().size(),
                                   y == nullptr ? nullptr : y + n * op.out().size(), mine, padded);
      });
    });
    const auto filters = static_cast<std::size_t>(op.filters);
    const auto total = [&](std::size_t i) {
      double sum = 0;
      for (std::size_t t = 0; t < threads_; ++t) sum += sums_of(t)[i];
      return static_cast<T>(sum);
    };
    for (std::size_t i = 0; i < op.kernel_size(); ++i) dw[i] = total(i);
    for (std::size_t f = 0; db != nullptr && f < filters; ++f) db[f] = total(op.kernel_size() + f);
  }

 private:
  /// Bytes of the longest vectors of which the filters are a multiple.
  static std::size_t vectors(const Conv2DOp& op) {
    return has_wide_vectors() && op.filters % lanes_of<T, wide_vector_bytes> == 0
               ? wide_vector_bytes
               : vector_bytes;
  }
  static std::size_t sums_size(const Conv2DOp& op) {
    return op.kernel_size() + static_cast<std::size_t>(op.filters);
  }
  std::size_t image_size(const Conv2DOp& op) const {
    return static_cast<std::size_t>(height_ * width_ * op.channels());
  }
  bool has_border(const Conv2DOp& op) const { return height_ != op.in[0] || width_ != op.in[1]; }
  /// Elements T per thread: sums and padded image, in whole cache lines to avoid false sharing.
  std::size_t thread_size(const Conv2DOp& op) const {
    return (sizeof(double) / sizeof(T) * sums_size(op) + (has_border(op) ? image_size(op) : 0) +
            31) /
           16 * 16;
  }

  /// Returns the zero-padded image, in `padded`; x itself if there is no padding.
  const T* with_border(const Conv2DOp& op, const T* x, T* padded) const {
    if (!has_border(op)) return x;
    std::fill_n(padded, image_size(op), T(0));
    const int top = op.rows().before(), left = op.columns().before(),
              row = op.in[1] * op.channels();
    for (int r = 0; r < op.in[0]; ++r)
      std::copy_n(x + r * row, row, padded + ((r + top) * width_ + left) * op.channels());
    return padded;
  }

  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void add_example(
      const Conv2DOp& op, const T* image, const T* dy, const T* y, double* sums, T* padded) const {
    const T* const x = with_border(op, image, padded);
    for (int f = 0; f < op.filters; f += lanes_of<T, Width>)
      for (std::size_t tap = 0; tap < taps_.size(); tap += at_once)
        add_taps<Width>(op, x, dy + f, y == nullptr ? nullptr : y + f, tap, sums + f);
  }

  /// Adds the products of taps [tap, tap + at_once), and the bias gradient along with the first
  /// tap. Indices beyond the last tap repeat it and discard the sum: cheaper than another pass over
  /// dy with fewer taps.
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void add_taps(const Conv2DOp& op,
                                                                           const T* x, const T* dy,
                                                                           const T* y,
                                                                           std::size_t tap,
                                                                           double* sums) const {
    using V = Lanes<T, Width>;
    const T* at[at_once];
    for (std::size_t t = 0; t < at_once; ++t)
      at[t] = x + taps_[std::min(tap + t, taps_.size() - 1)];
    const int height = op.out()[0], width = op.out()[1], filters = op.filters;
    const std::ptrdiff_t step = op.strides.width * op.channels();
    V sum[at_once] = {}, bias_sum{};
    for (int r = 0, terms = 0; r < height; ++r) {
      const std::ptrdiff_t in =
          static_cast<std::ptrdiff_t>(r) * op.strides.height * width_ * op.channels();
      const std::ptrdiff_t out = static_cast<std::ptrdiff_t>(r) * width * filters;
      for (int first = 0; first < width; first += max_bias_terms) {
        const int last = std::min(first + max_bias_terms, width);
        for (int c = first; c < last; ++c) {
          V gradient;
          load(gradient, dy + out + c * filters);
          if (y != nullptr) {
            V activation;
            load(activation, y + out + c * filters);
            gradient = activation <= T(0) ? V{} : gradient;  // NaN passes it
          }
          bias_sum += gradient;
#pragma GCC unroll 9
          for (std::size_t t = 0; t < at_once; ++t) sum[t] += at[t][in + c * step] * gradient;
        }
        if (tap == 0) {
          add_lanes<T>(sums + taps_.size() * static_cast<std::size_t>(filters), bias_sum);
          bias_sum = V{};
        }
        terms += last - first;
        const bool is_end = last == width && r + 1 == height;
        if (!is_end && terms + std::min(width, max_bias_terms) <= max_kernel_terms) continue;
        terms = 0;
#pragma GCC unroll 9
        for (std::size_t t = 0; t < at_once; ++t) {
          if (tap + t < taps_.size())
            add_lanes<T>(sums + (tap + t) * static_cast<std::size_t>(filters), sum[t]);
          sum[t] = V{};
        }
      }
    }
  }

  /// Terms that a float accumulates, for the bias and the kernel gradient, before the partial sum
  /// is added in double.
  static constexpr int max_bias_terms = 32, max_kernel_terms = 128;
  /// Taps per pass over dy. Nine accumulators nearly fill the 16 registers of AVX2, and cover a
  /// 3 x 3 kernel over one channel.
  static constexpr std::size_t at_once = 9;

  std::size_t threads_ = 1;
  int height_ = 0, width_ = 0;        // of the padded image
  std::vector<std::ptrdiff_t> taps_;  // offsets in the padded image, in the kernel's order
};

}  // namespace lockstep::detail
