/// \file
/// UpSampling2D on every device over host memory. Invariant: each pixel of a result is written by
/// one thread, so the bits do not depend on their number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/up_sampling2d.hpp"

namespace lockstep {
namespace detail {

/// What the loops need to know; elements if not said otherwise.
struct UpSamplingSizes {
  explicit UpSamplingSizes(const UpSampling2DOp& op)
      : rows(at(op.in[0])),
        columns(at(op.in[1])),
        channels(at(op.in[2])),
        high(at(op.size.height)),
        wide(at(op.size.width)) {}
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  std::size_t rows, columns, channels, high, wide;        // of x, and the factors
  std::size_t row = columns * channels;                   // of x
  std::size_t wide_row = row * wide;                      // of y
  std::size_t grain = (1 << 14) / (wide_row * high) + 1;  // rows of x that are worth a thread
};

template <class D>
struct HostUpSampling2D : KernelTraits {
  using T = typename D::real;
  using Numbers = UpSamplingSizes;

  [[gnu::noinline]] static void forward(const UpSampling2DOp& op, const Io<D>& io) {
    const Numbers n(op);
    if (op.interpolation == Interpolation::nearest)
      for_ranges(io.device, io.count * n.rows, n.grain, [&](Slice part) {
        for (std::size_t r = part.first; r < part.first + part.count; ++r)
          repeat_row(n, io.x + r * n.row, io.y + r * n.high * n.wide_row);
      });
    else
      for_ranges(io.device, io.count * n.rows, n.grain, [&](Slice part) {
        for (std::size_t r = part.first * n.high; r < (part.first + part.count) * n.high; ++r) {
          const auto from =
              place_of<T>(static_cast<int>(r % (n.rows * n.high)), op.size.height, op.in[0]);
          const T* const image = io.x + r / (n.rows * n.high) * n.rows * n.row;
          blend_row(op, n, image + at(from.low) * n.row, image + at(from.high) * n.row, from.part,
                    io.y + r * n.wide_row);
        }
      });
  }

  [[gnu::noinline]] static void backward(const UpSampling2DOp& op, const Io<D>& io) {
    if (io.dx == nullptr) return;
    const Numbers n(op);
    if (op.interpolation == Interpolation::nearest)
      for_ranges(io.device, io.count * n.rows, n.grain, [&](Slice part) {
        for (std::size_t r = part.first; r < part.first + part.count; ++r)
          sum_rows(n, io.dy + r * n.high * n.wide_row, io.dx + r * n.row);
      });
    else
      for_ranges(io.device, io.count, n.grain / n.rows + 1, [&](Slice part) {
        for (std::size_t e = part.first; e < part.first + part.count; ++e)
          spread(op, n, io.dy + e * n.rows * n.high * n.wide_row, io.dx + e * n.rows * n.row);
      });
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  /// x (columns, channels), y (high, columns, wide, channels)
  static void repeat_row(const Numbers& n, const T* x, T* y) {
    for (std::size_t c = 0; c < n.columns; ++c)
      for (std::size_t j = 0; j < n.wide; ++j)
        std::copy_n(x + c * n.channels, n.channels, y + (c * n.wide + j) * n.channels);
    for (std::size_t i = 1; i < n.high; ++i) std::copy_n(y, n.wide_row, y + i * n.wide_row);
  }
  static void sum_rows(const Numbers& n, const T* dy, T* dx) {
    std::fill_n(dx, n.row, T(0));
    for (std::size_t i = 0; i < n.high; ++i)
      for (std::size_t c = 0; c < n.columns; ++c)
        for (std::size_t j = 0; j < n.wide; ++j)
          for (std::size_t k = 0; k < n.channels; ++k)
            dx[c * n.channels + k] += dy[i * n.wide_row + (c * n.wide + j) * n.channels + k];
  }

  /// above, below (columns, channels), y (columns, wide, channels)
  static void blend_row(const UpSampling2DOp& op, const Numbers& n, const T* above, const T* below,
                        T down, T* y) {
    for (int c = 0; c < op.in[1] * op.size.width; ++c) {
      const auto from = place_of<T>(c, op.size.width, op.in[1]);
      const std::size_t low = at(from.low) * n.channels, high = at(from.high) * n.channels;
      T* const pixel = y + at(c) * n.channels;  // (channels)
      for (std::size_t k = 0; k < n.channels; ++k) {
        const T upper = above[low + k] + (above[high + k] - above[low + k]) * from.part,
                lower = below[low + k] + (below[high + k] - below[low + k]) * from.part;
        pixel[k] = upper + (lower - upper) * down;
      }
    }
  }
  /// The gradient of one image: each dy goes to the four pixels that its result came from.
  static void spread(const UpSampling2DOp& op, const Numbers& n, const T* dy, T* dx) {
    std::fill_n(dx, n.rows * n.row, T(0));
    for (int r = 0; r < op.in[0] * op.size.height; ++r) {
      const auto down = place_of<T>(r, op.size.height, op.in[0]);
      T* const above = dx + at(down.low) * n.row;   // (columns, channels)
      T* const below = dx + at(down.high) * n.row;  // (columns, channels)
      for (int c = 0; c < op.in[1] * op.size.width; ++c) {
        const auto from = place_of<T>(c, op.size.width, op.in[1]);
        const std::size_t low = at(from.low) * n.channels, high = at(from.high) * n.channels;
        const T* const pixel = dy + at(r) * n.wide_row + at(c) * n.channels;  // (channels)
        const T a = (1 - down.part) * (1 - from.part), b = (1 - down.part) * from.part,
                d = down.part * (1 - from.part), e = down.part * from.part;
        for (std::size_t k = 0; k < n.channels; ++k) {
          above[low + k] += a * pixel[k];
          above[high + k] += b * pixel[k];
          below[low + k] += d * pixel[k];
          below[high + k] += e * pixel[k];
        }
      }
    }
  }
};

}  // namespace detail

template <HostDevice D>
requires(std::is_same_v<ActivationOf<D>, typename D::real>) struct Kernel<UpSampling2DOp, D>
    : detail::HostUpSampling2D<D> {
};

}  // namespace lockstep
