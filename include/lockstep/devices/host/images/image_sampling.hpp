/// \file
/// Interpolation between the pixels of an image, for the layers that translate, rotate or resize
/// it. Invariant: each output element is a weighted sum of at most four input elements, and
/// backward scatters with the same weights, in the type that the device computes in.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/layers/preprocessing/augmentation.hpp"

namespace lockstep::detail {

/// The random stream of example n of the call: stream `ordinal` under the key
/// mix(mix(seed, layer), pass). All devices follow this rule.
template <class D>
Philox example_noise(const Io<D>& io, std::size_t n) {
  return Philox(mix(mix(io.step.seed, io.key), io.step.pass), io.step.first_ordinal + n);
}

/// The element type of activations.
template <class D>
using ElementOf = std::remove_pointer_t<decltype(Io<D>::y)>;

/// The two neighbours of a coordinate along one axis, and their weights. Index -1 is outside of the
/// image and stands for the fill value.
struct AxisTaps {
  std::array<std::int64_t, 2> index;
  std::array<double, 2> weight;
};

/// Maps `index`, which may lie outside of [0, extent), to the pixel that fills it; -1: the
/// constant.
inline std::int64_t index_with_fill(std::int64_t index, std::int64_t extent, FillMode mode) {
  if (index >= 0 && index < extent) return index;
  const auto modulo = [index](std::int64_t n) { return (index % n + n) % n; };
  switch (mode) {
    case FillMode::reflect: {
      const std::int64_t p = modulo(2 * extent);
      return p < extent ? p : 2 * extent - 1 - p;
    }
    case FillMode::wrap:
      return modulo(extent);
    case FillMode::nearest:
      return index < 0 ? 0 : extent - 1;
    case FillMode::constant:
      break;
  }
  return -1;
}

/// Taps of the coordinate `at`, in pixels: pixel i is centred at i.
inline AxisTaps axis_taps(double at, std::int64_t extent, FillMode mode, Interpolation how) {
  if (how == Interpolation::nearest)
    return {{index_with_fill(static_cast<std::int64_t>(std::round(at)), extent, mode), 0}, {1, 0}};
  // Not std::floor, which is a library call unless SSE4.1 is enabled at compile time.
  auto index = static_cast<std::int64_t>(at);
  if (static_cast<double>(index) > at) --index;
  const double above = at - static_cast<double>(index);
  return {{index_with_fill(index, extent, mode), index_with_fill(index + 1, extent, mode)},
          {1 - above, above}};
}

/// The input pixels of one output pixel (at most 2 x 2), as offsets of their first channel.
template <class T>
struct PixelTaps {
  std::array<std::size_t, 4> index;
  std::array<T, 4> weight;
  std::size_t count = 0;
  T outside = 0;  ///< total weight of taps outside of the image, which read the fill value

  PixelTaps(const Shape& in, const AxisTaps& rows, const AxisTaps& columns) {
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 2; ++j) {
        const double both = rows.weight[i] * columns.weight[j];
        if (both == 0) continue;
        if (rows.index[i] < 0 || columns.index[j] < 0) {
          outside += static_cast<T>(both);
          continue;
        }
        index[count] = static_cast<std::size_t>((rows.index[i] * in[1] + columns.index[j]) * in[2]);
        weight[count++] = static_cast<T>(both);
      }
  }
};

/// Gathers one output pixel: to[k] = sum over taps of weight * pixel[k], for all channels k.
template <class T, class A>
void sample_pixel(const A* image, const Shape& in, const AxisTaps& rows, const AxisTaps& columns,
                  float fill, A* to) {
  const PixelTaps<T> taps(in, rows, columns);
  for (std::size_t k = 0; k < static_cast<std::size_t>(in[2]); ++k) {
    T sum = taps.outside * T(fill);
    for (std::size_t i = 0; i < taps.count; ++i)
      sum += taps.weight[i] * static_cast<T>(image[taps.index[i] + k]);
    to[k] = static_cast<A>(sum);
  }
}

/// The transpose of sample_pixel: adds dy of one output pixel, weighted, to dx of its taps.
template <class T, class A>
void scatter_pixel(const A* dy, const Shape& in, const AxisTaps& rows, const AxisTaps& columns,
                   T* dx) {
  const PixelTaps<T> taps(in, rows, columns);
  for (std::size_t i = 0; i < taps.count; ++i)
    for (std::size_t k = 0; k < static_cast<std::size_t>(in[2]); ++k)
      dx[taps.index[i] + k] += taps.weight[i] * static_cast<T>(dy[k]);
}

/// Scratch for the gradient sums of one image of `size` elements. No scratch is needed where dx has
/// the type of the sums.
template <class D>
struct ImageSums {
  static constexpr bool in_place = std::is_same_v<ElementOf<D>, typename D::real>;
  std::size_t size;
  std::size_t scratch_bytes() const { return in_place ? 0 : size * sizeof(typename D::real); }

  /// Computes dx of image n: add(sums) accumulates into zeros, and each sum is rounded once.
  template <class Add>
  void gather(const Io<D>& io, std::size_t n, const Add& add) const {
    using T = typename D::real;
    using A = ElementOf<D>;
    A* const dx = io.dx[0] + n * size;
    if constexpr (in_place) {
      std::fill_n(dx, size, T(0));
      add(dx);
    } else {
      T* const sums = reinterpret_cast<T*>(io.scratch);
      std::fill_n(sums, size, T(0));
      add(sums);
      std::transform(sums, sums + size, dx, [](T sum) { return static_cast<A>(sum); });
    }
  }
};

}  // namespace lockstep::detail
