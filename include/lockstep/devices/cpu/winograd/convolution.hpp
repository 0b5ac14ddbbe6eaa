/// \file
/// A 3 x 3 convolution by Winograd's transforms: forward, and the input gradient, which is the same
/// convolution with the kernel flipped and transposed.
///
///     x --B' d B--> v (16, channels, tiles)        kernel --G g G'--> u (16, channels, filters)
///     m[i] = v[i] u[i]   16 matrix products        y = A' m A + bias
///
/// Invariants: the bits depend neither on the number of threads nor on the other examples; an
/// infinity or NaN in the images makes all outputs of the tiles that read it NaN.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/devices/cpu/winograd/tiles.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep::detail {

/// The pass of a convolution to compute.
enum class WinogradPass { forward, input_gradient };

/// One pass of one Conv2DOp. Each thread works on a few tiles at a time, from transform to inverse
/// transform, so that the intermediate values stay in the caches. Scratch:
///
///     | transformed kernel u, shared | thread 0: v, m | thread 1: v, m | ...
template <class T>
class WinogradConvolution {
 public:
  /// Whether this pass and WinogradKernelGradient apply and are faster than oneDNN: at least three
  /// quarters of the tiles' output pixels lie in the image, and the kernel, which is transformed in
  /// each call, is small relative to an image's tiles.
  static bool fits(const Conv2DOp& op) {
    const Shape out = op.out();
    const int tiles = (out[0] + 1) / 2 * ((out[1] + 1) / 2), most = 256;
    return op.groups == 1 && op.kernel == KernelSize{3, 3} && op.strides == Strides{1, 1} &&
           op.dilation == Dilation{1, 1} && op.channels() % 16 == 0 && op.filters % 16 == 0 &&
           op.channels() <= most && op.filters <= most && out[0] >= 4 && out[1] >= 4 &&
           out[0] * out[1] >= 3 * tiles && (op.channels() * op.filters + 2047) / 2048 <= tiles &&
           has_vectors();
  }

  WinogradConvolution() = default;
  /// `bytes`: vector length of the processor, 32 or 64.
  WinogradConvolution(const Conv2DOp& op, WinogradPass pass, int threads, std::size_t bytes)
      : flipped_(pass == WinogradPass::input_gradient),
        channels_(flipped_ ? op.filters : op.channels()),
        filters_(flipped_ ? op.channels() : op.filters),
        threads_(static_cast<std::size_t>(threads)),
        bytes_(bytes) {
    const int top = op.rows().before(), left = op.columns().before();
    tiles_ = flipped_ ? WinogradTiles<T>(op.out(), op.in, 2 - top, 2 - left)
                      : WinogradTiles<T>(op.in, op.out(), top, left);
    const int registers = bytes == 64 ? sums<64> : sums<32>;
    vectors_ = bytes != 64 || filters_ % 32 == 0 ? 2 : 1;
    if (bytes == 64 && filters_ % 64 == 0) vectors_ = 4;
    const std::ptrdiff_t tiles = winograd_tiles_at_once(channels_ + filters_, registers / vectors_);
    from_ = {tiles, channels_};
    to_ = {tiles, filters_};
  }
  explicit operator bool() const { return threads_ > 0; }
  std::size_t scratch_bytes() const {
    return (kernel_size() + threads_ * workspace_size()) * sizeof(T);
  }

  /// Reads x (count, in), the op's kernel (3, 3, channels, filters) and bias (filters) or null;
  /// writes y (count, out). For the input gradient x and y are dy and dx.
  void operator()(std::size_t count, const T* x, const T* kernel, const T* bias, bool relu, T* y,
                  std::byte* scratch) const {
    T* const u = reinterpret_cast<T*>(scratch);
    const std::size_t blocks = static_cast<std::size_t>(channels_ / lanes()) *
                               static_cast<std::size_t>(filters_ / lanes());
    // Phase 1: all threads transform the kernel, which every tile needs.
    parallel_ranges(static_cast<int>(threads_), blocks, 4, [&](Slice mine, std::size_t) {
      run_with_vectors_of(bytes_,
                          [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
                            for (std::size_t i = mine.first; i < mine.first + mine.count; ++i)
                              transform_kernel<bytes.value>(kernel, static_cast<int>(i), u);
                          });
    });
    // Phase 2: each thread transforms, multiplies and transforms back a range of the tiles.
    parallel_ranges(
        static_cast<int>(threads_), count * tiles_.size(), 16, [&](Slice all, std::size_t index) {
          T* const v = u + kernel_size() + index * workspace_size();
          T* const m = in_place() ? v : v + from_.size();
          const auto capacity = static_cast<std::size_t>(from_.capacity);
          for (std::size_t done = 0; done < all.count; done += capacity) {
            const Slice tiles{all.first + done, std::min(capacity, all.count - done)};
            tiles_.pixels(bytes_, tiles, x, from_, v);
            run_with_vectors_of(
                bytes_, [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
                  multiply<bytes.value>(static_cast<std::ptrdiff_t>(tiles.count), v, u, m);
                });
            run_with_vectors_of(
                bytes_, [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
                  tiles_.template results<bytes.value>(tiles, to_, m, bias, relu, y);
                });
          }
        });
  }

 private:
  /// Accumulators that fit into the registers along with the operands.
  template <std::size_t Width>
  static constexpr int sums = Width == 64 ? 24 : 12;

  int lanes() const { return static_cast<int>(bytes_ / sizeof(T)); }
  /// Whether the products m may overwrite v. True if one block covers all filters: it then has read
  /// all channels of its tiles before it writes.
  bool in_place() const { return channels_ == filters_ && filters_ == vectors_ * lanes(); }
  std::size_t workspace_size() const { return from_.size() + (in_place() ? 0 : to_.size()); }
  std::size_t kernel_size() const {
    return 16 * static_cast<std::size_t>(channels_) * static_cast<std::size_t>(filters_);
  }

  /// u = G g G' for one block of lanes x lanes channels and filters. Layout of u: (16,
  /// filters / lanes, channels, lanes).
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void transform_kernel(const T* kernel,
                                                                                   int block,
                                                                                   T* u) const {
    using V = Lanes<T, Width>;
    constexpr int lanes = lanes_of<T, Width>;
    const int filter = block / (channels_ / lanes) * lanes,
              channel = block % (channels_ / lanes) * lanes;
    const std::ptrdiff_t position = static_cast<std::ptrdiff_t>(channels_) * filters_;
    T flipped[std::size_t{9 * lanes * lanes}];
    const T* g = kernel + static_cast<std::ptrdiff_t>(channel) * filters_ + filter;
    std::ptrdiff_t tap = position, next = filters_;
    if (flipped_) {
      for (int i = 0; i < 9; ++i)
        for (int f = 0; f < lanes; ++f)
          for (int c = 0; c < lanes; ++c)
            flipped[((8 - i) * lanes + c) * lanes + f] =
                kernel[i * position + static_cast<std::ptrdiff_t>(filter + f) * channels_ +
                       channel + c];
      g = flipped;
      tap = lanes * lanes;
      next = lanes;
    }
    T* to = u + (static_cast<std::ptrdiff_t>(filter) * channels_ + channel * lanes);
    for (int c = 0; c < lanes; ++c, g += next, to += lanes) {
      V side[4][3];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        V p[3];
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i) load(p[i], g + (3 * i + j) * tap);
        expand(p[0], p[1], p[2], side[0][j], side[1][j], side[2][j], side[3][j]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        V p[4];
        expand(side[i][0], side[i][1], side[i][2], p[0], p[1], p[2], p[3]);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) store(to + (4 * i + j) * position, p[j]);
      }
    }
  }
  /// G g for three values: (a, (a + b + c) / 2, (a - b + c) / 2, c).
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static inline void expand(
      const V& a, const V& b, const V& c, V& first, V& second, V& third, V& fourth) {
    const V ends = a + c;
    first = a;
    second = (ends + b) * T(0.5);
    third = (ends - b) * T(0.5);
    fourth = c;
  }

  /// m = v u: one matrix product for each of the 16 positions.
  template <std::size_t Width>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void multiply(std::ptrdiff_t tiles,
                                                                           T* v, const T* u,
                                                                           T* m) const {
    if constexpr (Width == 64) {
      if (vectors_ == 4) return multiply_vectors<Width, 4>(tiles, v, u, m);
      if (vectors_ == 1) return multiply_vectors<Width, 1>(tiles, v, u, m);
    }
    multiply_vectors<Width, 2>(tiles, v, u, m);
  }
  template <std::size_t Width, int Vectors>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void multiply_vectors(
      std::ptrdiff_t tiles, T* v, const T* u, T* m) const {
    constexpr int lanes = lanes_of<T, Width>, unit = sums<Width> / Vectors;
    // The last block of tiles may be partial; it multiplies zeros for the missing ones.
    const std::ptrdiff_t padded = (tiles + unit - 1) / unit * unit;
    for (int i = 0; i < 16 && padded > tiles; ++i)
      for (int c = 0; c < channels_; c += lanes)
        std::fill_n(v + i * from_.stride + c * from_.capacity + tiles * lanes,
                    (padded - tiles) * lanes, T(0));
    for (int i = 0; i < 16; ++i) {
      for (int f = 0; f < filters_; f += Vectors * lanes)
        for (std::ptrdiff_t t = 0; t < tiles; t += unit)
          multiply_block<Width, unit, Vectors>(v + t * lanes, u + f * std::ptrdiff_t{channels_},
                                               m + f * to_.capacity + t * lanes);
      v += from_.stride;
      u += static_cast<std::ptrdiff_t>(channels_) * filters_;
      m += to_.stride;
    }
  }
  /// One register block of the product: Tiles tiles times Vectors vectors of filters.
  template <std::size_t Width, int Tiles, int Vectors>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void multiply_block(const T* v,
                                                                                 const T* u,
                                                                                 T* m) const {
    using V = Lanes<T, Width>;
    constexpr int lanes = lanes_of<T, Width>;
    const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(channels_) * lanes;
    V sum[std::size_t{Tiles}][std::size_t{Vectors}] = {};
    for (int c = 0; c < channels_; c += lanes, v += from_.capacity * lanes)
      for (int k = 0; k < lanes; ++k, u += lanes) {
        V weight[std::size_t{Vectors}];
#pragma GCC unroll 4
        for (int f = 0; f < Vectors; ++f) load(weight[f], u + f * next);
#pragma GCC unroll 24
        for (int t = 0; t < Tiles; ++t)
#pragma GCC unroll 4
          for (int f = 0; f < Vectors; ++f) sum[t][f] += v[t * lanes + k] * weight[f];
      }
#pragma GCC unroll 24
    for (int t = 0; t < Tiles; ++t)
#pragma GCC unroll 4
      for (int f = 0; f < Vectors; ++f) store(m + f * to_.capacity * lanes + t * lanes, sum[t][f]);
  }

  bool flipped_ = false;
  int channels_ = 0, filters_ = 0;  // of the tensors read and written: exchanged if flipped_
  int vectors_ = 1;                 // vectors of filters per register block
  std::size_t threads_ = 0, bytes_ = 0;
  WinogradTiles<T> tiles_;
  WinogradTileLayout<T> from_, to_;
};

}  // namespace lockstep::detail
