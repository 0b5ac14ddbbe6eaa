/// \file
/// The loops over rows of a normalization, with what follows it. Invariants: rows are walked in
/// blocks that stay in the first cache; a block's moments are taken about its own mean, so nothing
/// cancels; forward and backward find the same elements positive.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/devices/cpu/lanes.hpp"

namespace lockstep::detail {

/// What is done to the normalized rows in the same pass.
enum class NormalizationTail { none, relu, add_relu };

/// The affine function of each channel: (x - mean) factor + beta; all (channels).
template <class T>
struct ChannelAffine {
  const T *mean, *factor, *beta;
};

/// Rows of so many channels that are one block: 16 KiB of floats at most. Rows are added to a float
/// 16 at a time, and these sums to another float: with at most 256 rows the error is below 1e-6 of
/// the sum of magnitudes.
constexpr std::size_t rows_of_block(std::size_t channels) {
  return std::clamp<std::size_t>(4096 / channels, 1, 256);
}
constexpr std::size_t rows_at_once = 16;

/// Channels [first, last) of `rows` rows: `middle`, the mean but for rounding, and the sums of
/// distances and of squared distances from it.
template <std::size_t Width, class T, class A>
[[gnu::always_inline]] inline void block_moments(const A* x, std::size_t rows, std::size_t channels,
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
    V all{}, all_squares{};
    i = k;
    for (std::size_t first_row = 0; first_row < rows; first_row += rows_at_once) {
      const std::size_t count = std::min(rows_at_once, rows - first_row);
      sum = sum2 = square = square2 = V{};
      for (std::size_t row = 0; row + 2 <= count; row += 2, i += 2 * channels) {
        load(v, x + i);
        load(v2, x + i + channels);
        v -= m;
        v2 -= m;
        sum += v;
        sum2 += v2;
        square += v * v;
        square2 += v2 * v2;
      }
      if (count % 2 != 0) {
        load(v, x + i);
        v -= m;
        sum += v;
        square += v * v;
        i += channels;
      }
      all += sum + sum2;
      all_squares += square + square2;
    }
    store(middle + k, m);
    store(distances + k, all);
    store(squares + k, all_squares);
  }
}

/// (x - mean) factor + beta: one text, so that the mask of backward is that of forward.
template <class V>
[[gnu::always_inline]] inline void apply_affine(V& v, const V& mean, const V& factor,
                                                const V& beta) {
  v = (v - mean) * factor + beta;
}

/// Channels [first, last) of `rows` rows: y = (x - mean) factor + beta, then + x2 and ReLU as Tail
/// says; NaN stays NaN.
template <std::size_t Width, NormalizationTail Tail, class T, class A>
[[gnu::always_inline]] inline void block_normalize(const A* x, [[maybe_unused]] const A* x2, A* y,
                                                   std::size_t rows, std::size_t channels,
                                                   std::size_t first, std::size_t last,
                                                   const ChannelAffine<T>& affine) {
  using V = Lanes<T, Width>;
  constexpr V zero{};
  for (std::size_t k = first; k < last; k += lanes_of<T, Width>) {
    V m, f, b, v, v2;
    load(m, affine.mean + k);
    load(f, affine.factor + k);
    load(b, affine.beta + k);
    for (std::size_t i = k; i < rows * channels; i += channels) {
      load(v, x + i);
      apply_affine(v, m, f, b);
      if constexpr (Tail == NormalizationTail::add_relu) {
        load(v2, x2 + i);
        v += v2;
      }
      if constexpr (Tail != NormalizationTail::none) v = v < zero ? zero : v;
      store(y + i, v);
    }
  }
}

/// dy where the result was positive: by the affine function again, or, where more was added, by y.
template <NormalizationTail Tail, class V, class A>
[[gnu::always_inline]] inline void mask(V& g, const V& x, [[maybe_unused]] const A* y, const V& m,
                                        [[maybe_unused]] const V& f, [[maybe_unused]] const V& b) {
  constexpr V zero{};
  if constexpr (Tail != NormalizationTail::none) {
    V v = x;
    if constexpr (Tail == NormalizationTail::relu)
      apply_affine(v, m, f, b);
    else
      load(v, y);
    g = v > zero ? g : zero;
  }
}

/// Channels [first, last) of `rows` rows: sums of dy and of dy (x - mean), where dy is masked as
/// Tail says. With add_relu the masked dy is written into dx2, unless that is null.
template <std::size_t Width, NormalizationTail Tail, class T, class A>
[[gnu::always_inline]] inline void block_sums(const A* x, const A* y, const A* dy,
                                              [[maybe_unused]] A* dx2, std::size_t rows,
                                              std::size_t channels, std::size_t first,
                                              std::size_t last, const ChannelAffine<T>& affine,
                                              T* sum_dy, T* sum_dy_xhat) {
  using V = Lanes<T, Width>;
  for (std::size_t k = first; k < last; k += lanes_of<T, Width>) {
    V m, f, b, v, g, v2, g2, all{}, all_products{};
    load(m, affine.mean + k);
    load(f, affine.factor + k);
    load(b, affine.beta + k);
    const auto load_masked = [&](std::size_t i, V& at, V& gradient) __attribute__((always_inline)) {
      load(at, x + i);
      load(gradient, dy + i);
      mask<Tail>(gradient, at, y + i, m, f, b);
      if constexpr (Tail == NormalizationTail::add_relu)
        if (dx2 != nullptr) store(dx2 + i, gradient);
    };
    std::size_t i = k;
    for (std::size_t first_row = 0; first_row < rows; first_row += rows_at_once) {
      const std::size_t count = std::min(rows_at_once, rows - first_row);
      V sum{}, sum2{}, products{}, products2{};
      for (std::size_t row = 0; row + 2 <= count; row += 2, i += 2 * channels) {
        load_masked(i, v, g);
        load_masked(i + channels, v2, g2);
        sum += g;
        products += g * (v - m);
        sum2 += g2;
        products2 += g2 * (v2 - m);
      }
      if (count % 2 != 0) {
        load_masked(i, v, g);
        sum += g;
        products += g * (v - m);
        i += channels;
      }
      all += sum + sum2;
      all_products += products + products2;
    }
    store(sum_dy + k, all);
    store(sum_dy_xhat + k, all_products);
  }
}

/// Channels [first, last) of `rows` rows: dx = factor dy - slope (x - mean) - shift, where dy is
/// masked as Tail says.
template <std::size_t Width, NormalizationTail Tail, class T, class A>
[[gnu::always_inline]] inline void block_gradient(const A* x, const A* y, const A* dy, A* dx,
                                                  std::size_t rows, std::size_t channels,
                                                  std::size_t first, std::size_t last,
                                                  const ChannelAffine<T>& affine, const T* slope,
                                                  const T* shift) {
  using V = Lanes<T, Width>;
  for (std::size_t k = first; k < last; k += lanes_of<T, Width>) {
    V m, f, b, s, c, v, g;
    load(m, affine.mean + k);
    load(f, affine.factor + k);
    load(b, affine.beta + k);
    load(s, slope + k);
    load(c, shift + k);
    for (std::size_t i = k; i < rows * channels; i += channels) {
      load(v, x + i);
      load(g, dy + i);
      mask<Tail>(g, v, y + i, m, f, b);
      g = g * f - (v - m) * s - c;
      store(dx + i, g);
    }
  }
}

}  // namespace lockstep::detail
