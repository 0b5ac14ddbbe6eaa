/// \file
/// Forward of Dense for a few examples on one thread: a product of a row and a matrix, which reads
/// the weights once, in their order. oneDNN's call alone takes longer than a small layer.
///
///     units        | block of up to 4 vectors | block | block |     the last may overlap the one
///     sums         partial sums of inputs i mod P                   before it, so that all are whole
///
/// Invariant: the products of an element are added in an order that depends on the layer only, not
/// on the number of examples.
#pragma once

#include <cstddef>

#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep::detail {

/// y = x w + bias of one DenseOp, optionally followed by a ReLU.
class DenseRows {
 public:
  /// Whether this loop is the fastest (docs/lab/steps.md, "One example"): larger products are worth
  /// a team, or a kernel that reads the weights once for several rows.
  static bool fits(const DenseOp& op, std::size_t rows, int threads) {
    return rows <= 4 &&
           (rows * op.kernel_size() <= (1 << 14) || (threads == 1 && rows == 1 && op.units <= 64));
  }

  DenseRows() = default;
  DenseRows(const DenseOp& op, std::size_t rows, bool relu)
      : rows_(static_cast<std::ptrdiff_t>(rows)),
        inputs_(op.inputs),
        units_(op.units),
        bytes_(longest_vectors()),
        bias_(op.bias),
        relu_(relu) {}
  explicit operator bool() const { return rows_ > 0; }

  /// y (rows, units) = x (rows, inputs) w (inputs, units) + bias, which follows w.
  void forward(const float* x, const float* w, float* y) const {
    const auto all = [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
      for (std::ptrdiff_t n = 0; n < rows_; ++n)
        row<bytes.value>(x + n * inputs_, w, y + n * units_);
    };
    if (bytes_ == 0) return all(Bytes<16>{});
    run_with_vectors_of(bytes_, all);
  }

 private:
  /// One example, in blocks of 4, 2 or 1 vectors, the longest that a block can fill.
  template <std::size_t Bytes>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void row(const float* x,
                                                                      const float* w,
                                                                      float* y) const {
    constexpr std::ptrdiff_t lanes = lanes_of<float, Bytes>;
    if constexpr (Bytes == 0) {
      for (std::ptrdiff_t u = 0; u < units_; ++u) block<1, Bytes>(x, w + u, y + u);
    } else {
      if (units_ < lanes) return row<(Bytes > 16 ? Bytes / 2 : 0)>(x, w, y);
      std::ptrdiff_t u = 0;
      for (; u + 4 * lanes <= units_; u += 4 * lanes) block<4, Bytes>(x, w + u, y + u);
      if (u + 2 * lanes <= units_) {
        block<2, Bytes>(x, w + u, y + u);
        u += 2 * lanes;
      }
      for (; u + lanes <= units_; u += lanes) block<1, Bytes>(x, w + u, y + u);
      if (u < units_) block<1, Bytes>(x, w + units_ - lanes, y + units_ - lanes);
    }
  }

  /// The units of W vectors. Several sums of each hide the latency of a multiply-add.
  template <int W, std::size_t Bytes>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void block(const float* x,
                                                                        const float* w,
                                                                        float* y) const {
    using V = Lanes<float, Bytes>;
    constexpr int lanes = lanes_of<float, Bytes>, sums = 8 / W;
    V sum[std::size_t{sums}][std::size_t{W}] = {};
    if (bias_)
#pragma GCC unroll 4
      for (int v = 0; v < W; ++v) load(sum[0][v], w + inputs_ * units_ + v * lanes);
    std::ptrdiff_t i = 0;
    for (; i + sums <= inputs_; i += sums) {
#pragma GCC unroll 8
      for (int p = 0; p < sums; ++p) add_products<W, Bytes>(x[i + p], w + (i + p) * units_, sum[p]);
    }
    for (; i < inputs_; ++i) add_products<W, Bytes>(x[i], w + i * units_, sum[0]);
#pragma GCC unroll 4
    for (int v = 0; v < W; ++v) {
#pragma GCC unroll 3
      for (int p = sums / 2; p > 0; p /= 2)
#pragma GCC unroll 4
        for (int q = 0; q < p; ++q) sum[q][v] += sum[q + p][v];
      const V zero{};
      if (relu_) sum[0][v] = sum[0][v] < zero ? zero : sum[0][v];  // propagates NaN
      store(y + v * lanes, sum[0][v]);
    }
  }

  template <int W, std::size_t Bytes>
  [[gnu::always_inline, gnu::no_instrument_function]] static inline void add_products(
      float x, const float* w, Lanes<float, Bytes> (&sum)[std::size_t{W}]) {
#pragma GCC unroll 4
    for (int v = 0; v < W; ++v) {
      Lanes<float, Bytes> values;
      load(values, w + v * lanes_of<float, Bytes>);
      sum[v] += x * values;
    }
  }

  std::ptrdiff_t rows_ = 0, inputs_ = 0, units_ = 0;
  std::size_t bytes_ = 0;
  bool bias_ = false, relu_ = false;
};

}  // namespace lockstep::detail
