/// \file
/// Loops over the rows of one block of a batch normalization, with a fused epilogue. Invariants: a
/// block stays in the first-level cache; its moments are about its own mean, which avoids
/// cancellation; forward and backward agree on which elements are positive.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/devices/cpu/lanes.hpp"

namespace lockstep::detail {

/// The epilogue applied to normalized rows in the same pass.
enum class NormalizationEpilogue { none, relu, add_relu };

/// Normalization as an affine function per channel: (x - mean) factor + beta, where factor = gamma
/// / sqrt(variance + epsilon). Each array is (channels).
template <class T>
struct ChannelAffine {
  const T *mean, *factor, *beta;
};

/// Rows per block: at most 16 KiB of floats. Sums are two-level: a float accumulates 16 rows, and a
/// second float those partial sums. With at most 256 rows this keeps the error below 1e-6 of the
/// sum of magnitudes.
constexpr std::size_t rows_of_block(std::size_t channels) {
  return std::clamp<std::size_t>(4096 / channels, 1, 256);
}
constexpr std::size_t rows_at_once = 16;

/// Moments of channels [first, last) over `rows` rows: `middle`, the mean up to rounding, and the
/// sums of deviations and of squared deviations from it. The sum of deviations corrects `middle`
/// when blocks are merged in double.
template <std::size_t Width, class T, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void block_moments(
    const A* x, std::size_t rows, std::size_t channels, std::size_t first, std::size_t last,
    T* middle, T* distances, T* squares) {
  using V = Lanes<T, Width>;
  // Per vector of channels: pass 1 computes the mean, pass 2 the deviations from it. Rows alternate
  // between two accumulators, which hides the latency of an addition.
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

/// v = (v - mean) factor + beta. Forward and backward share this function so that both round alike,
/// and the mask of backward is exactly that of forward.
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void apply_affine(V& v, const V& mean,
                                                                             const V& factor,
                                                                             const V& beta) {
  v = (v - mean) * factor + beta;
}

/// y = (x - mean) factor + beta for channels [first, last) of `rows` rows, followed by the epilogue
/// (+ x2, ReLU). NaN propagates.
template <std::size_t Width, NormalizationEpilogue epilogue, class T, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void block_normalize(
    const A* x, [[maybe_unused]] const A* x2, A* y, std::size_t rows, std::size_t channels,
    std::size_t first, std::size_t last, const ChannelAffine<T>& affine) {
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
      if constexpr (epilogue == NormalizationEpilogue::add_relu) {
        load(v2, x2 + i);
        v += v2;
      }
      if constexpr (epilogue != NormalizationEpilogue::none) v = v < zero ? zero : v;
      store(y + i, v);
    }
  }
}

/// Masks g by the ReLU: keeps it where the output was positive or NaN. The output is recomputed from
/// x, or read from y if x2 was added.
template <NormalizationEpilogue epilogue, class V, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void mask(V& g, const V& x,
                                                                     [[maybe_unused]] const A* y,
                                                                     const V& m,
                                                                     [[maybe_unused]] const V& f,
                                                                     [[maybe_unused]] const V& b) {
  constexpr V zero{};
  if constexpr (epilogue != NormalizationEpilogue::none) {
    V v = x;
    if constexpr (epilogue == NormalizationEpilogue::relu)
      apply_affine(v, m, f, b);
    else
      load(v, y);
    g = v <= zero ? zero : g;
  }
}

/// Sums of dy and of dy (x - mean) for channels [first, last) over `rows` rows, with dy masked
/// according to the epilogue. With add_relu, also writes the masked dy to dx2, unless dx2 is null.
template <std::size_t Width, NormalizationEpilogue epilogue, class T, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void block_sums(
    const A* x, const A* y, const A* dy, [[maybe_unused]] A* dx2, std::size_t rows,
    std::size_t channels, std::size_t first, std::size_t last, const ChannelAffine<T>& affine,
    T* sum_dy, T* sum_dy_xhat) {
  using V = Lanes<T, Width>;
  for (std::size_t k = first; k < last; k += lanes_of<T, Width>) {
    V m, f, b, v, g, v2, g2, all{}, all_products{};
    load(m, affine.mean + k);
    load(f, affine.factor + k);
    load(b, affine.beta + k);
    const auto load_masked = [&](std::size_t i, V& at, V& gradient)
                                 __attribute__((always_inline, no_instrument_function)) {
                                   load(at, x + i);
                                   load(gradient, dy + i);
                                   mask<epilogue>(gradient, at, y + i, m, f, b);
                                   if constexpr (epilogue == NormalizationEpilogue::add_relu)
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

/// dx = factor dy - slope (x - mean) - shift for channels [first, last) of `rows` rows, with dy
/// masked according to the epilogue.
template <std::size_t Width, NormalizationEpilogue epilogue, class T, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void block_gradient(
    const A* x, const A* y, const A* dy, A* dx, std::size_t rows, std::size_t channels,
    std::size_t first, std::size_t last, const ChannelAffine<T>& affine, const T* slope,
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
      mask<epilogue>(g, v, y + i, m, f, b);
      g = g * f - (v - m) * s - c;
      store(dx + i, g);
    }
  }
}

}  // namespace lockstep::detail
