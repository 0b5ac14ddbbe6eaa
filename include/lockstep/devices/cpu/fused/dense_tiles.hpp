/// \file
/// Dense layers of 64 units on one thread, in register tiles (benchmarks/fused.cpp). The layer is
/// memory-bound: x, w and their gradients exceed the second-level cache. So backward makes a single
/// pass over the inputs, in blocks, from the last to the first, since forward has read the last
/// ones most recently. For each block of inputs:
///
///     dw[block] = x[:, block]' dy       tiles of 6 inputs x 64 units
///     dx[:, block] = dy w[block]'       tiles of 8 examples x 48 inputs; dx may overwrite x
///     optimizer updates w[block]        while the block is still in the first-level cache
///
/// The tiles of one block prefetch the next. Invariant: the products of an element are added in the
/// order of inputs in y, of examples in dw and of units in dx, for any batch size.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep::detail {

/// The passes of one DenseOp, optionally followed by a ReLU.
class DenseTiles {
 public:
  /// Whether the tiles apply and are the fastest (docs/lab/steps.md, "The seed step").
  static bool fits(const DenseOp& op, std::size_t count, int threads) {
    return threads == 1 && has_wide_vectors() && op.units == units && op.inputs % lanes == 0 &&
           op.inputs >= 3136 && count >= 16 && count <= 256;
  }

  DenseTiles() = default;
  DenseTiles(const DenseOp& op, std::size_t count, bool relu)
      : count_(static_cast<std::ptrdiff_t>(count)),
        inputs_(op.inputs),
        bias_(op.bias),
        relu_(relu) {}
  explicit operator bool() const { return count_ > 0; }
  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(2 * count_ * units + units * block + 24 / width * block) *
           sizeof(float);
  }

  /// y (count, units) = x (count, inputs) w (inputs, units) + bias, which follows w.
  void forward(const float* x, const float* w, float* y) const {
    run_with_wide_vectors(
        [&](auto) __attribute__((always_inline, no_instrument_function)) { forward_all(x, w, y); });
  }

  /// Writes dw (inputs, units), followed by the bias gradient, and dx (count, inputs), except for one
  /// that is null; dx may alias x. Calls `update` for each part of dw once that part is final.
  void backward(const float* x, const float* w, const float* y, const float* dy, float* dx,
                float* dw, float* scratch, const UpdateRef<float>& update) const {
    run_with_wide_vectors([&](auto) __attribute__((always_inline, no_instrument_function)) {
      backward_all(x, w, y, dy, dx, dw, scratch, update);
    });
  }

 private:
  using V = Lanes<float, wide_vector_bytes>;
  static constexpr int lanes = lanes_of<float, wide_vector_bytes>;
  static constexpr int units = 4 * lanes;
  static constexpr std::ptrdiff_t depth = 96;  // inputs per block in forward
  static constexpr std::ptrdiff_t width = 3,
                                  block = width * lanes;  // inputs per block in backward
  static constexpr std::ptrdiff_t line = 16;              // floats per cache line

  [[gnu::always_inline, gnu::no_instrument_function]] inline void forward_all(const float* x,
                                                                              const float* w,
                                                                              float* y) const {
    for (std::ptrdiff_t n = 0; n < count_; ++n)
      for (std::ptrdiff_t u = 0; u < units; ++u)
        y[n * units + u] = bias_ ? w[inputs_ * units + u] : 0.0f;
    for (std::ptrdiff_t i = 0; i < inputs_; i += depth) {
      const std::ptrdiff_t size = std::min(depth, inputs_ - i);
      const bool is_last = i + size == inputs_;
      std::ptrdiff_t n = 0, tile = 0;
      const auto tiles = [&](auto rows) __attribute__((always_inline, no_instrument_function)) {
        constexpr int R = rows.value;
        for (; n + R <= count_; n += R, ++tile) {
          // The tiles of this block prefetch the next one: first its w, then its x.
          const std::ptrdiff_t after = tile - units / line;
          Prefetch next{w + i * units, units};
          if (!is_last && after < 0) next = {w + (i + size) * units + tile * size * line, line};
          if (!is_last && after >= 0) next = {x + i + size + after * line, inputs_};
          forward_tile<R>(x + n * inputs_ + i, w + i * units, size, y + n * units, next);
        }
      };
      tiles(Constant<6>{});
      tiles(Constant<2>{});
      tiles(Constant<1>{});
    }
    if (relu_)  // propagates NaN
      for (std::ptrdiff_t i = 0; i < count_ * units; ++i) y[i] = y[i] < 0 ? 0.0f : y[i];
  }

  /// Cache lines that a tile prefetches for later tiles, `step` floats apart, one per iteration.
  struct Prefetch {
    const float* at;
    std::ptrdiff_t step;
    [[gnu::always_inline, gnu::no_instrument_function]] void next() {
      __builtin_prefetch(at, 0, 2);
      at += step;
    }
  };

  /// y (R, units) += x (R, size) w (size, units).
  template <int R>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void forward_tile(
      const float* x, const float* w, std::ptrdiff_t size, float* y, Prefetch prefetch) const {
    V sum[std::size_t{R}][4];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) load(sum[r][v], y + r * units + v * lanes);
    for (std::ptrdiff_t i = 0; i < size; ++i) {
      prefetch.next();
      add_products<R, 4>(x + i, inputs_, w, sum);
      w += units;
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) store(y + r * units + v * lanes, sum[r][v]);
  }

  /// Rank-1 update: sum (R, W vectors) += a column of a (R, `row` floats apart) times a row of b.
  template <int R, int W>
  [[gnu::always_inline, gnu::no_instrument_function]] static inline void add_products(
      const float* a, std::ptrdiff_t row, const float* b,
      V (&sum)[std::size_t{R}][std::size_t{W}]) {
    V values[std::size_t{W}];
#pragma GCC unroll 4
    for (int v = 0; v < W; ++v) load(values[v], b + v * lanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const float factor = a[r * row];
#pragma GCC unroll 4
      for (int v = 0; v < W; ++v) sum[r][v] += factor * values[v];
    }
  }

  [[gnu::always_inline, gnu::no_instrument_function]] inline void backward_all(
      const float* x, const float* w, const float* y, const float* dy, float* dx, float* dw,
      float* scratch, const UpdateRef<float>& update) const {
    if (relu_) {
      for (std::ptrdiff_t i = 0; i < count_ * units; ++i) scratch[i] = y[i] <= 0 ? 0.0f : dy[i];
      dy = scratch;
    }
    // Scratch: masked dy | dy in panels of R examples, each (units, R) | w of a block, transposed |
    // the dx tile of a partial block.
    float* const panels = scratch + count_ * units;
    float* const transposed = panels + count_ * units;
    float* const rest = transposed + units * block;
    // dy in panels, so that input_tile reads the R examples of a unit from consecutive memory.
    for_each_panel([&](auto rows, std::ptrdiff_t n)
                       __attribute__((always_inline, no_instrument_function)) {
                         constexpr std::ptrdiff_t R = rows.value;
                         for (std::ptrdiff_t u = 0; u < units; ++u)
                           for (std::ptrdiff_t r = 0; r < R; ++r)
                             panels[n * units + u * R + r] = dy[(n + r) * units + u];
                       });
    if (bias_ && dw != nullptr) {
      float* const db = dw + inputs_ * units;
      double sum[units] = {};
      for (std::ptrdiff_t n = 0; n < count_; ++n)
        for (std::ptrdiff_t u = 0; u < units; ++u) sum[u] += static_cast<double>(dy[n * units + u]);
      for (std::ptrdiff_t u = 0; u < units; ++u) db[u] = static_cast<float>(sum[u]);
      if (update) update(db, static_cast<std::size_t>(units));
    }
    // Blocks of inputs from the last, possibly partial, to the first.
    for (std::ptrdiff_t i = (inputs_ - 1) / block * block; i >= 0; i -= block) {
      const std::ptrdiff_t size = std::min(block, inputs_ - i),
                           next = std::max(i - block, i % block);
      if (dx != nullptr) transpose_block(w + i * units, size, transposed);
      std::ptrdiff_t r = dw != nullptr ? 0 : size;
      for (; r + 6 <= size; r += 6) {
        // Prefetch as in forward: the next block's x, then its w.
        const std::ptrdiff_t tile = r / 6;
        const Prefetch prefetch =
            tile < width ? Prefetch{x + next + tile * line, inputs_}
                         : Prefetch{w + next * units + (tile - width) * count_ * line, line};
        weight_tile<6>(x + i + r, dy, dw + (i + r) * units, prefetch);
      }
      for (; r < size; r += 2)
        weight_tile<2>(x + i + r, dy, dw + (i + r) * units, {x + next, inputs_});
      if (dx != nullptr) {
        for_each_panel([&](auto rows, std::ptrdiff_t n) __attribute__((always_inline,
                                                                       no_instrument_function)) {
          constexpr int R = rows.value;
          float* const to = dx + n * inputs_ + i;
          input_tile<R>(panels + n * units, transposed, size == block ? to : rest,
                        size == block ? inputs_ : block);
          if (size == block) return;
          for (int k = 0; k < R; ++k) std::copy_n(rest + k * block, size, to + k * inputs_);
        });
      }
      if (update) update(dw + i * units, static_cast<std::size_t>(size * units));
    }
  }

  /// dw (R, units) = x (count, R)^T dy (count, units).
  template <int R>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void weight_tile(
      const float* x, const float* dy, float* dw, Prefetch prefetch) const {
    V sum[std::size_t{R}][4] = {};
    for (std::ptrdiff_t n = 0; n < count_; ++n) {
      prefetch.next();
      add_products<R, 4>(x, 1, dy, sum);
      x += inputs_;
      dy += units;
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) store(dw + r * units + v * lanes, sum[r][v]);
  }

  /// Calls visit(Constant<R>, n) for panels of examples [n, n + R), whose dx is one tile.
  template <class Visit>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void for_each_panel(
      const Visit& visit) const {
    std::ptrdiff_t n = 0;
    for (; n + 24 / width <= count_; n += 24 / width) visit(Constant<int{24 / width}>{}, n);
    for (; n + 2 <= count_; n += 2) visit(Constant<2>{}, n);
    for (; n < count_; ++n) visit(Constant<1>{}, n);
  }

  /// dx (R, block) = dy (units, R)^T w (units, block).
  template <int R>
  [[gnu::always_inline, gnu::no_instrument_function]] inline void input_tile(
      const float* dy, const float* w, float* dx, std::ptrdiff_t row) const {
    V sum[std::size_t{R}][std::size_t{width}] = {};
    for (std::ptrdiff_t u = 0; u < units; ++u) {
      add_products<R, width>(dy, 1, w, sum);
      dy += R;
      w += block;
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
      for (int v = 0; v < width; ++v) store(dx + r * row + v * lanes, sum[r][v]);
  }

  /// Transposes w (size, units) into (units, block), in squares of lanes x lanes.
  [[gnu::always_inline, gnu::no_instrument_function]] inline void transpose_block(
      const float* w, std::ptrdiff_t size, float* to) const {
    for (std::ptrdiff_t i = 0; i < size; i += lanes)
      for (std::ptrdiff_t u = 0; u < units; u += lanes) {
        V row[lanes];
#pragma GCC unroll 16
        for (int r = 0; r < lanes; ++r) load(row[r], w + (i + r) * units + u);
        transpose_lanes(row);
#pragma GCC unroll 16
        for (int r = 0; r < lanes; ++r) store(to + (u + r) * block + i, row[r]);
      }
  }

  std::ptrdiff_t count_ = 0, inputs_ = 0;
  bool bias_ = false, relu_ = false;
};

}  // namespace lockstep::detail
