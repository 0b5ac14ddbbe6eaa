/// \file
/// Kernel gradient of a 3 x 3 convolution by Winograd's transforms:
///
///     v = B' d B of each tile of x,  e = A dy A' of each tile of dy
///     s[i] = sum over tiles of v[i]' e[i]   16 matrix products
///     dw = G' s G                           once, at the end
///
/// Invariant: each thread sums its own tiles, and the threads' sums are added in thread order, so
/// equal sizes and thread counts give equal bits.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/devices/cpu/winograd/tiles.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep::detail {

/// dw and db of one Conv2DOp for which WinogradConvolution::fits holds. Scratch of each thread:
///
///     | s (16, channels, filters) | sums of dy (filters), double | v of a few tiles | e of these |
template <class T>
class WinogradKernelGradient {
 public:
  WinogradKernelGradient() = default;
  WinogradKernelGradient(const Conv2DOp& op, int threads, std::size_t bytes)
      : channels_(op.channels()),
        filters_(op.filters),
        threads_(static_cast<std::size_t>(threads)),
        bytes_(bytes),
        tiles_(op.in, op.out(), op.rows().before(), op.columns().before()) {
    const std::ptrdiff_t tiles = winograd_tiles_at_once(channels_ + filters_, 16);
    pixels_ = {tiles, channels_};
    gradients_ = {tiles, filters_};
  }
  explicit operator bool() const { return threads_ > 0; }
  std::size_t scratch_bytes() const { return threads_ * thread_size() * sizeof(T); }

  /// Reads x (count, in) and dy (count, out); writes dw (3, 3, channels, filters) and db (filters),
  /// unless db is null.
  void operator()(std::size_t count, const T* x, const T* dy, T* dw, T* db,
                  std::byte* scratch) const {
    T* const workspaces = reinterpret_cast<T*>(scratch);
    const std::size_t all_tiles = count * tiles_.size();
    const std::size_t parts = std::clamp<std::size_t>(all_tiles / tiles_per_thread, 1, threads_);
    parallel_ranges(static_cast<int>(threads_), parts, 1, [&](Slice mine, std::size_t) {
      for (std::size_t t = mine.first; t < mine.first + mine.count; ++t) {
        std::fill_n(workspaces + t * thread_size(), products_size(), T(0));
        std::fill_n(sums_of_dy(workspaces + t * thread_size()), filters_, 0.0);
      }
    });
    parallel_ranges(
        static_cast<int>(threads_), all_tiles, tiles_per_thread, [&](Slice all, std::size_t index) {
          T* const sums = workspaces + index * thread_size();
          double* const sum_dy = sums_of_dy(sums);  // (filters)
          T* const v = sums + sums_size();
          T* const e = v + pixels_.size();
          const auto capacity = static_cast<std::size_t>(pixels_.capacity);
          for (std::size_t done = 0; done < all.count; done += capacity) {
            const Slice tiles{all.first + done, std::min(capacity, all.count - done)};
            tiles_.pixels(bytes_, tiles, x, pixels_, v);
            run_with_vectors_of(
                bytes_, [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
                  tiles_.template gradients<bytes.value>(tiles, dy, gradients_, e, sum_dy);
                });
            run_with_vectors_of(
                bytes_, [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
                  multiply<bytes.value>(static_cast<std::ptrdiff_t>(tiles.count), v, e, sums);
                });
          }
        });
    // Merge and inverse transform: threads split the channels, so each dw has one writer.
    const auto channels = static_cast<std::size_t>(channels_);
    parallel_ranges(static_cast<int>(threads_), channels, 8, [&](Slice mine, std::size_t) {
      run_with_vectors_of(
          bytes_, [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
            for (std::size_t c = mine.first; c < mine.first + mine.count; ++c)
              for (int f = 0; f < filters_; f += lanes_of<T, bytes.value>)
                transform_back<bytes.value>(static_cast<int>(c), f, workspaces, parts, dw);
          });
    });
    for (int f = 0; db != nullptr && f < filters_; ++f) {
      double sum = 0;
      for (std::size_t t = 0; t < parts; ++t) sum += sums_of_dy(workspaces + t * thread_size())[f];
      db[f] = static_cast<T>(sum);
    }
  }

 private:
  /// Minimum tiles per thread: clearing and merging a thread's sums costs about as much as a dozen
  /// tiles.
  static constexpr std::size_t tiles_per_thread = 64;

  /// Elements of s.
  std::size_t products_size() const {
    return 16 * static_cast<std::size_t>(channels_) * static_cast<std::size_t>(filters_);
  }
  /// The sums of dy in a thread's workspace.
  double* sums_of_dy(T* workspace) const {
    return reinterpret_cast<double*>(workspace + products_size());
  }
  /// Elements T of s and of the sums of dy, which are in double.
  std::size_t sums_size() const {
    return products_size() + sizeof(double) / sizeof(T) * static_cast<std::size_t>(filters_);
  }
  std::size_t thread_size() const {
    return (sums_size() + pixels_.size() + gradients_.size() + 15) / 16 * 16;
  }

  /// sums (16, filters / lanes, channels, lanes) += v' e: one matrix product for each of the 16
  /// positions.
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void multiply(std::ptrdiff_t tiles,
                                                                           const T* v, const T* e,
                                                                           T* sums) const {
    constexpr int lanes = lanes_of<T, Width>;
    constexpr int of_pairs = Width == 64 ? 8 : 4, of_singles = 16;
    for (int i = 0; i < 16; ++i) {
      int f = 0;
      for (; f + 2 * lanes <= filters_; f += 2 * lanes)
        for (int c = 0; c < channels_; c += of_pairs)
          multiply_block<Width, of_pairs, 2>(
              tiles, v + c / lanes * lanes * pixels_.capacity + c % lanes,
              e + f * gradients_.capacity, sums + f * std::ptrdiff_t{channels_} + c * lanes);
      if constexpr (Width == 64)  // a last single vector; shorter vectors always come in pairs
        for (int c = 0; f < filters_ && c < channels_; c += of_singles)
          multiply_block<Width, of_singles, 1>(
              tiles, v + c / lanes * lanes * pixels_.capacity + c % lanes,
              e + f * gradients_.capacity, sums + f * std::ptrdiff_t{channels_} + c * lanes);
      v += pixels_.stride;
      e += gradients_.stride;
      sums += static_cast<std::ptrdiff_t>(channels_) * filters_;
    }
  }
  /// One register block of the product: Channels channels times Vectors vectors of filters.
  template <std::size_t Width, int Channels, int Vectors>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void multiply_block(
      std::ptrdiff_t tiles, const T* v, const T* e, T* sums) const {
    using V = Lanes<T, Width>;
    constexpr int lanes = lanes_of<T, Width>;
    V sum[std::size_t{Channels}][std::size_t{Vectors}] = {};
    for (std::ptrdiff_t t = 0; t < tiles; ++t, v += lanes, e += lanes) {
      V gradient[std::size_t{Vectors}];
#pragma GCC unroll 2
      for (int f = 0; f < Vectors; ++f) load(gradient[f], e + f * gradients_.capacity * lanes);
#pragma GCC unroll 16
      for (int c = 0; c < Channels; ++c)
#pragma GCC unroll 2
        for (int f = 0; f < Vectors; ++f) sum[c][f] += v[c] * gradient[f];
    }
    const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(channels_) * lanes;
#pragma GCC unroll 16
    for (int c = 0; c < Channels; ++c)
#pragma GCC unroll 2
      for (int f = 0; f < Vectors; ++f) {
        V old;
        load(old, sums + f * next + c * lanes);
        store(sums + f * next + c * lanes, old + sum[c][f]);
      }
  }

  /// dw = G' s G for one channel and one vector of filters, with s summed over the threads' parts.
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void transform_back(
      int channel, int filter, const T* workspaces, std::size_t parts, T* dw) const {
    using V = Lanes<T, Width>;
    constexpr int lanes = lanes_of<T, Width>;
    const std::ptrdiff_t position = static_cast<std::ptrdiff_t>(channels_) * filters_;
    const T* const from =
        workspaces + static_cast<std::ptrdiff_t>(filter) * channels_ + channel * lanes;
    T* const to = dw + static_cast<std::ptrdiff_t>(channel) * filters_ + filter;
    V side[4][3];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      V s[4] = {};
      for (std::size_t t = 0; t < parts; ++t)
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          V part;
          load(part,
               from + static_cast<std::ptrdiff_t>(t * thread_size()) + (4 * i + j) * position);
          s[j] += part;
        }
      contract(s[0], s[1], s[2], s[3], side[i][0], side[i][1], side[i][2]);
    }
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      V g[3];
      contract(side[0][j], side[1][j], side[2][j], side[3][j], g[0], g[1], g[2]);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) store(to + (3 * i + j) * position, g[i]);
    }
  }
  /// G' s for four values: (a + (b + c) / 2, (b - c) / 2, (b + c) / 2 + d).
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static inline void contract(
      const V& a, const V& b, const V& c, const V& d, V& first, V& second, V& third) {
    const V half = (b + c) * T(0.5);
    first = a + half;
    second = (b - c) * T(0.5);
    third = half + d;
  }

  int channels_ = 0, filters_ = 0;
  std::size_t threads_ = 0, bytes_ = 0;
  WinogradTiles<T> tiles_;
  WinogradTileLayout<T> pixels_, gradients_;
};

}  // namespace lockstep::detail
