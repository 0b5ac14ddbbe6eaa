/// \file
/// Winograd's minimal filtering F(2x2, 3x3) of NHWC images. A tile of 2 x 2 outputs is computed
/// from 4 x 4 pixels with 16 multiplications per channel and filter, instead of 36. This file has
/// the tiling of an image and the transforms:
///
///          | 1  0 -1  0 |        | 1    0    0   |         | 1  1  1  0 |
///     B' = | 0  1  1  0 |    G = | 1/2  1/2  1/2 |    A' = | 0  1 -1 -1 |
///          | 0 -1  1  0 |        | 1/2 -1/2  1/2 |
///          | 0  1  0 -1 |        | 0    0    1   |
///
/// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015. Invariants:
/// the transforms only add, subtract and halve, so rounding errors are about those of direct
/// convolution; tiles are independent, so an output's bits do not depend on the rest of the batch.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/core/shape.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/devices/cpu/lanes.hpp"

namespace lockstep::detail {

/// Memory layout of transformed tiles: (16 positions, channels / lanes, capacity, lanes), so that a
/// register block reads consecutive tiles of one vector of channels.
template <class T>
struct WinogradTileLayout {
  std::ptrdiff_t capacity = 0;  // tiles per position
  std::ptrdiff_t stride = 0;    // elements from one position to the next

  WinogradTileLayout() = default;
  /// The stride has one cache line of padding: at a power of two, all 16 positions would map to the
  /// same set of the first-level cache.
  WinogradTileLayout(std::ptrdiff_t tiles, int channels)
      : capacity(tiles), stride(tiles * channels + std::ptrdiff_t{wide_vector_bytes / sizeof(T)}) {}
  std::size_t size() const { return static_cast<std::size_t>(16 * stride); }
};

/// Tiles per batch, a multiple of `unit`, for `channels` input plus output channels. With few
/// channels the workspaces should fit into the first-level cache. With many, each transformed
/// kernel should serve many tiles, and the workspaces fit into the second level.
constexpr std::ptrdiff_t winograd_tiles_at_once(int channels, int unit) {
  return std::max(std::min(48, channels / 2) / unit, 1) * unit;
}

/// The tiling of the output `out` in 2 x 2 tiles. The 4 x 4 input pixels of a tile begin `top` rows
/// above and `left` columns left of it.
template <class T>
class WinogradTiles {
 public:
  WinogradTiles() = default;
  WinogradTiles(Shape in, Shape out, int top, int left)
      : in_(in), out_(out), top_(top), left_(left), columns_((out[1] + 1) / 2) {}

  /// Number of tiles of one image.
  std::size_t size() const { return static_cast<std::size_t>((out_[0] + 1) / 2 * columns_); }

  /// v = B' d B for the 4 x 4 pixels d of each tile in x (count, in), with vectors of `bytes`
  /// bytes.
  void pixels(std::size_t bytes, Slice tiles, const T* x, const WinogradTileLayout<T>& layout,
              T* v) const {
    run_with_vectors_of(bytes,
                        [&](auto length) __attribute__((always_inline, no_instrument_function)) {
                          transform_pixels<length.value>(tiles, x, layout, v);
                        });
  }

  /// y = A' m A + bias for each tile, written to y (count, out); bias may be null.
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void results(
      Slice tiles, const WinogradTileLayout<T>& layout, const T* m, const T* bias, bool relu,
      T* y) const {
    using V = Lanes<T, Width>;
    const std::ptrdiff_t channels = out_[2];
    for_each_row(tiles, [&](const Row& row) __attribute__((always_inline, no_instrument_function)) {
      const bool second_row = 2 * row.y + 1 < out_[0];
      for (std::ptrdiff_t c = 0; c < channels; c += lanes_of<T, Width>) {
        V start{};
        if (bias != nullptr) load(start, bias + c);
        const T* from = m + c * layout.capacity + row.at * lanes_of<T, Width>;
        T* const to = y + ((row.image * out_[0] + 2 * row.y) * out_[1] + 2 * row.x) * channels + c;
        for (int t = 0; t < row.count; ++t) {
          V side[2][4];
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) {
            V p[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) load(p[j], from + (4 * i + j) * layout.stride);
            side[0][i] = p[0] + p[1] + p[2];
            side[1][i] = p[1] - p[2] - p[3];
          }
          const auto put = [&](int r, int at, const V& value)
                               __attribute__((always_inline, no_instrument_function)) {
                                 const V sum = value + start;
                                 store(to + (r * out_[1] + 2 * t + at) * channels,
                                       relu ? (sum < T(0) ? V{} : sum) : sum);  // propagates NaN
                               };
          const bool second = 2 * (row.x + t) + 1 < out_[1];
          put(0, 0, side[0][0] + side[0][1] + side[0][2]);
          if (second) put(0, 1, side[1][0] + side[1][1] + side[1][2]);
          if (second_row) put(1, 0, side[0][1] - side[0][2] - side[0][3]);
          if (second_row && second) put(1, 1, side[1][1] - side[1][2] - side[1][3]);
          from += lanes_of<T, Width>;
        }
      }
    });
  }

  /// e = A d A' for the 2 x 2 gradients d of each tile in dy (count, out); adds their sums to db
  /// (channels). A float accumulates at most 16 tiles before its sum is added in double.
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void gradients(
      Slice tiles, const T* dy, const WinogradTileLayout<T>& layout, T* e, double* db) const {
    using V = Lanes<T, Width>;
    const std::ptrdiff_t channels = out_[2];
    for_each_row(tiles, [&](const Row& row) __attribute__((always_inline, no_instrument_function)) {
      const bool second_row = 2 * row.y + 1 < out_[0];
      for (std::ptrdiff_t c = 0; c < channels; c += lanes_of<T, Width>) {
        const T* upper =
            dy + ((row.image * out_[0] + 2 * row.y) * out_[1] + 2 * row.x) * channels + c;
        const T* lower = second_row ? upper + out_[1] * channels : zeros;
        const std::ptrdiff_t right = channels, right_below = second_row ? channels : 0;
        T* to = e + c * layout.capacity + row.at * lanes_of<T, Width>;
        V sum{};
        for (int t = 0; t < row.count; ++t) {
          V p[2][2];
          load(p[0][0], upper);
          load(p[1][0], lower);
          if (2 * (row.x + t) + 1 < out_[1]) {
            load(p[0][1], upper + right);
            load(p[1][1], lower + right_below);
          } else {
            p[0][1] = p[1][1] = V{};
          }
          const V side[4][2] = {{p[0][0], p[0][1]},
                                {p[0][0] + p[1][0], p[0][1] + p[1][1]},
                                {p[0][0] - p[1][0], p[0][1] - p[1][1]},
                                {-p[1][0], -p[1][1]}};
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) {
            T* const at = to + 4 * i * layout.stride;
            const V both = side[i][0] + side[i][1];
            store(at, side[i][0]);
            store(at + layout.stride, both);
            store(at + 2 * layout.stride, side[i][0] - side[i][1]);
            store(at + 3 * layout.stride, -side[i][1]);
            if (i == 1) sum += both;
          }
          upper += 2 * right;
          lower += 2 * right_below;
          to += lanes_of<T, Width>;
          if (t % 16 == 15 || t + 1 == row.count) {
            add_lanes<T>(db + c, sum);
            sum = V{};
          }
        }
      }
    });
  }

 private:
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void transform_pixels(
      Slice tiles, const T* x, const WinogradTileLayout<T>& layout, T* v) const {
    using V = Lanes<T, Width>;
    const std::ptrdiff_t channels = in_[2];
    for_each_row(tiles, [&](const Row& row) __attribute__((always_inline, no_instrument_function)) {
      for (std::ptrdiff_t c = 0; c < channels; c += lanes_of<T, Width>) {
        // Rows of pixels outside of the image read zeros, with a step of 0.
        const T* from[4];
        std::ptrdiff_t step[4];
        for (int i = 0; i < 4; ++i) {
          const int r = 2 * row.y - top_ + i;
          const bool inside = r >= 0 && r < in_[0];
          from[i] = inside ? x + (row.image * in_[0] + r) * in_[1] * channels + c : zeros;
          step[i] = inside ? channels : 0;
        }
        const auto column = [&](int at, V(&d)[4])
                                __attribute__((always_inline, no_instrument_function)) {
                                  if (at < 0 || at >= in_[1]) {
                                    d[0] = d[1] = d[2] = d[3] = V{};
                                    return;
                                  }
                                  V p[4];
#pragma GCC unroll 4
                                  for (int i = 0; i < 4; ++i) load(p[i], from[i] + at * step[i]);
                                  d[0] = p[0] - p[2];
                                  d[1] = p[1] + p[2];
                                  d[2] = p[2] - p[1];
                                  d[3] = p[1] - p[3];
                                };
        T* to = v + c * layout.capacity + row.at * lanes_of<T, Width>;
        int at = 2 * row.x - left_;
        V first[4], second[4], third[4], fourth[4];
        column(at, first);
        column(at + 1, second);
        // Adjacent tiles share two of their four columns, which are transformed once.
        for (int t = 0; t < row.count; ++t) {
          at += 2;
          column(at, third);
          column(at + 1, fourth);
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) {
            T* const p = to + 4 * i * layout.stride;
            store(p, first[i] - third[i]);
            store(p + layout.stride, second[i] + third[i]);
            store(p + 2 * layout.stride, third[i] - second[i]);
            store(p + 3 * layout.stride, second[i] - fourth[i]);
            first[i] = third[i];
            second[i] = fourth[i];
          }
          to += lanes_of<T, Width>;
        }
      }
    });
  }

  /// Adjacent tiles in one row of an image. `at` is the index of the first one in the workspaces.
  struct Row {
    std::ptrdiff_t image;
    int y, x, count;
    std::ptrdiff_t at;
  };
  /// Calls visit(Row) for the rows that make up `tiles`, which may begin and end within a row.
  template <class Visit>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void for_each_row(
      Slice tiles, const Visit& visit) const {
    Row row{static_cast<std::ptrdiff_t>(tiles.first / size()),
            static_cast<int>(tiles.first % size()) / columns_,
            static_cast<int>(tiles.first % size()) % columns_, 0, 0};
    const auto total = static_cast<std::ptrdiff_t>(tiles.count);
    while (row.at < total) {
      row.count = static_cast<int>(std::min<std::ptrdiff_t>(columns_ - row.x, total - row.at));
      visit(row);
      row.at += row.count;
      row.x = 0;
      if (++row.y < (out_[0] + 1) / 2) continue;
      row.y = 0;
      ++row.image;
    }
  }

  alignas(wide_vector_bytes) static constexpr T zeros[wide_vector_bytes / sizeof(T)] = {};

  Shape in_, out_;
  int top_ = 0, left_ = 0, columns_ = 1;
};

}  // namespace lockstep::detail
