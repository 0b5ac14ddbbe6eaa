/// \file
/// Interpolated sampling of images on a GPU. Invariant: coordinates and weights are computed in
/// double and rounded as on the host, without contraction into fma.
///
///     pixel (r, c) of the result -> Places: source coordinates -> axis_taps: 2 x 2 neighbours and
///     weights -> filled_place: edge mode -> weighted sum of up to 4 pixels and the fill value
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/philox.hpp"
#include "lockstep/layers/interpolation.hpp"
#include "lockstep/layers/preprocessing/random_crop.hpp"

namespace lockstep::detail::cuda {

inline constexpr char sampling_text[] = R"cuda(
// Maps a coordinate outside of the image according to the fill mode; -1 stands for the fill value.
__device__ int filled_place(int place, int extent) {
  if (place >= 0 && place < extent) return place;
#if FILL_MODE == 0  // reflect
  const int p = (place % (2 * extent) + 2 * extent) % (2 * extent);
  return p < extent ? p : 2 * extent - 1 - p;
#elif FILL_MODE == 2  // wrap
  return (place % extent + extent) % extent;
#elif FILL_MODE == 3  // nearest
  return place < 0 ? 0 : extent - 1;
#else
  return -1;
#endif
}

// The two neighbours along an axis, and their weights.
struct Taps {
  int first, second;
  double of_first, of_second;
};
// Bilinear: the two neighbours of `at`, by distance; nearest: one tap of weight 1.
__device__ Taps axis_taps(double at, int extent) {
#if NEAREST
  const Taps taps = {filled_place((int)round(at), extent), 0, 1, 0};
#else
  const int place = (int)floor(at);
  const double above = at - place;
  const Taps taps = {filled_place(place, extent), filled_place(place + 1, extent), 1 - above,
                     above};
#endif
  return taps;
}

// Source coordinates of the result's pixels.
struct Places {
#ifdef AFFINE
  double m[6];
  __device__ Places(Stream stream, i64 n) {
    Draws draws(stream, n);
    const double first = draws.uniform(), second = draws.uniform();
    map(first, second, m);
  }
  __device__ double row(int r, int c) const { return along(m + 3, r, c); }
  __device__ double column(int r, int c) const { return along(m, r, c); }
  __device__ static double along(const double* m, int r, int c) {
    return __dadd_rn(__dadd_rn(__dmul_rn(m[0], c), __dmul_rn(m[1], r)), m[2]);
  }
#else
  // Pixels are areas: pixel centres map by (place + 1/2) * scale - 1/2.
  __device__ Places(Stream, i64) {}
  __device__ double row(int r, int) const { return along(r, (double)WINDOW_ROWS / OUT_ROWS); }
  __device__ double column(int, int c) const {
    return along(c, (double)WINDOW_COLUMNS / OUT_COLUMNS);
  }
  __device__ static double along(int place, double scale) {
    return __dadd_rn(__dmul_rn(place + 0.5, scale), -0.5);
  }
#endif
};

// The source pixels of one result pixel, by the offset of their first channel; -1: none.
struct Pixels {
  int place[4];
  float weight[4], outside;
  __device__ void tap(int i, int r, int c, double weight_of_both) {
    place[i] = -1;
    weight[i] = (float)weight_of_both;
    if (weight_of_both == 0) return;
    if (r < 0 || c < 0)
      outside += (float)weight_of_both;
    else
      place[i] = ((WINDOW_ROW + r) * IN_COLUMNS + WINDOW_COLUMN + c) * CHANNELS;
  }
  __device__ Pixels(const Places& places, int r, int c) : outside(0) {
    const Taps rows = axis_taps(places.row(r, c), WINDOW_ROWS);
    const Taps columns = axis_taps(places.column(r, c), WINDOW_COLUMNS);
    tap(0, rows.first, columns.first, __dmul_rn(rows.of_first, columns.of_first));
    tap(1, rows.first, columns.second, __dmul_rn(rows.of_first, columns.of_second));
    tap(2, rows.second, columns.first, __dmul_rn(rows.of_second, columns.of_first));
    tap(3, rows.second, columns.second, __dmul_rn(rows.of_second, columns.of_second));
  }
};

// One thread per result pixel, all channels.
KERNEL(sample)(const A* x, A* y, Stream stream, i64 count) {
  const int pixels = OUT_ROWS * OUT_COLUMNS;
  for (i64 n = blockIdx.y; n < count; n += gridDim.y) {
    const Places places(stream, n);
    const A* image = x + n * IN_SIZE;
    for (int i = INDEX; i < pixels; i += STRIDE) {
      const Pixels from(places, i / OUT_COLUMNS, i % OUT_COLUMNS);
      for (int k = 0; k < CHANNELS; ++k) {
        float sum = from.outside * FILL;
        for (int j = 0; j < 4; ++j)
          if (from.place[j] >= 0) sum += from.weight[j] * get(image[from.place[j] + k]);
        y[(n * pixels + i) * CHANNELS + k] = put<A>(sum);
      }
    }
  }
}
)cuda";

/// The sampling of one op; `more`: its additional defines.
template <std::size_t N>
struct Sampling {
  Source source;
  Shape in, out;
  ImagePart window;  ///< the part that is sampled; edges or fill values surround it
  Fill fill;
  Interpolation interpolation;
  std::array<Define, N> more;
};

/// Appends the sampling's geometry to the op's own defines.
template <class Precision, std::size_t N>
auto sampling_defines(const Sampling<N>& s) {
  std::array<Define, N + 12> all{};
  std::copy(s.more.begin(), s.more.end(), all.begin());
  const std::array<Define, 12> own{
      Define("IN_SIZE", s.in.size()),
      Define("IN_COLUMNS", s.in[1]),
      Define("CHANNELS", s.in[2]),
      Define("OUT_ROWS", s.out[0]),
      Define("OUT_COLUMNS", s.out[1]),
      Define("WINDOW_ROW", s.window.row),
      Define("WINDOW_COLUMN", s.window.column),
      Define("WINDOW_ROWS", s.window.height),
      Define("WINDOW_COLUMNS", s.window.width),
      Define("FILL_MODE", static_cast<int>(s.fill.mode)),
      Define("FILL", s.fill.value),
      Define("NEAREST", s.interpolation == Interpolation::nearest ? 1 : 0)};
  std::copy(own.begin(), own.end(), all.begin() + N);
  return with_activation<Precision>(all);
}

/// Samples a batch: y = the resampled x.
template <std::size_t N, class Precision>
void sample(const Sampling<N>& s, const Io<BasicCuda<Precision>>& io) {
  const auto pixels = static_cast<std::size_t>(s.out[0] * s.out[1]);
  io.device.launch(io.device.kernel(s.source, "sample", sampling_defines<Precision>(s)),
                   example_grid(io.step.count, pixels), io.x[0], io.y, stream_of(io),
                   static_cast<std::int64_t>(io.step.count));
}

}  // namespace lockstep::detail::cuda
