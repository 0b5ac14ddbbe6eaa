/// \file
/// Muon on every device over host memory. Invariants: the bits depend on the matrix and the op only,
/// not on threads, so replicas that update the same weights stay identical; a gradient of 0 gives a
/// step of 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/devices/host/adjust.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/optimizers/muon.hpp"

namespace lockstep {

namespace detail {

/// out (rows, columns) = left (rows, inner) right (inner, columns), all row-major.
template <class T>
struct MatrixProduct {
  const T *left, *right;
  T* out;
  std::size_t rows, inner, columns;
  bool is_symmetric = false;  ///< the result is: half of it need not be computed
};

/// Loop policy of MuonKernel: products in order, on the calling thread.
struct ProductsInOrder {
  struct Scope {};
  template <class T, class Context>
  static void multiply(Context&, const MatrixProduct<T>& p) {
    std::fill_n(p.out, p.rows * p.columns, T(0));
    for (std::size_t i = 0; i < p.rows; ++i)
      for (std::size_t k = 0; k < p.inner; ++k) {
        const T factor = p.left[i * p.inner + k];
        for (std::size_t j = 0; j < p.columns; ++j)
          p.out[i * p.columns + j] += factor * p.right[k * p.columns + j];
      }
  }
};

/// Kernel of Muon; `Loops` is the device's policy of products. The workspace, for a matrix whose
/// shorter side is s and whose longer side is l:
///
///     | X (s, l) | Y (l, s), then the next X (s, l) | A (s, s) | B (s, s) |
template <class D, class Loops>
struct MuonKernel : KernelTraits {
  using T = typename D::real;

  static std::size_t scratch_bytes(const Shape& shape, const ParameterRule& rule) {
    if (rule.slot[1] > 0) return 0;
    const auto [rows, columns] = sides(shape);
    const std::size_t side = std::min(rows, columns);
    return sizeof(T) * 2 * (rows * columns + side * side);
  }

  /// Updates one parameter.
  static void update(const MuonOp& op, const UpdateIo<D>& io) {
    if (io.slot[1] != nullptr) return run_kernel<D>(op.adam, io);
    const auto [rows, columns] = sides(io.shape);
    const bool is_tall = rows > columns;
    const std::size_t side = std::min(rows, columns), length = std::max(rows, columns);
    T* x = reinterpret_cast<T*>(io.scratch);
    T* y = x + io.size;
    T* const a = y + io.size;
    T* const b = a + side * side;

    T* const direction = is_tall ? y : x;
    advance(op, io, direction);
    normalize(op, io, direction);
    if (is_tall) transpose(io, y, x, rows, columns);
    for (const QuinticStep& step : op.iteration.steps()) {
      transpose(io, x, y, side, length);
      Loops::multiply(io.device, MatrixProduct<T>{x, y, a, side, length, side, true});
      Loops::multiply(io.device, MatrixProduct<T>{a, a, b, side, side, side, true});
      combine(io, step, a, b, side);
      Loops::multiply(io.device, MatrixProduct<T>{b, x, y, side, side, length});
      std::swap(x, y);
    }
    if (is_tall) {
      transpose(io, x, y, columns, rows);
      std::swap(x, y);
    }
    const T rate = static_cast<T>(op.step_size(rows, columns));
    for_ranges(io.device, io.size, grain, [&](Slice part) {
      for (std::size_t i = part.first; i < part.first + part.count; ++i) io.w[i] -= rate * x[i];
    });
  }

 private:
  static constexpr std::size_t grain = 1 << 15;

  /// Inputs and outputs of a kernel: (in, out), or (h, w, in, out) with h w in rows.
  static std::pair<std::size_t, std::size_t> sides(const Shape& shape) {
    const auto columns = static_cast<std::size_t>(shape.channels());
    return {shape.size() / columns, columns};
  }
  /// The new momentum, and the direction before the iteration.
  static void advance(const MuonOp& op, const UpdateIo<D>& io, T* direction) {
    const auto adjust = adjust_of(io);
    const T keep = static_cast<T>(op.momentum);
    const T share = static_cast<T>(op.is_mean ? 1 - op.momentum : 1);
    T* const m = io.slot[0];
    for_ranges(io.device, io.size, grain, [&](Slice part) {
      [[maybe_unused]] const typename Loops::Scope scope;
      for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        const T g = share * adjust(io.w[i], io.g[i]);
        m[i] = keep * m[i] + g;
        direction[i] = op.nesterov ? g + keep * m[i] : m[i];
      }
    });
  }
  static void normalize(const MuonOp& op, const UpdateIo<D>& io, T* x) {
    const double norm = std::sqrt(sum_in_lanes(io.size, [x](std::size_t i) {
      return static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }));
    const T divisor =
        static_cast<T>(op.floors_norm ? std::max(norm, op.epsilon) : norm + op.epsilon);
    for_ranges(io.device, io.size, grain, [&](Slice part) {
      [[maybe_unused]] const typename Loops::Scope scope;
      for (std::size_t i = part.first; i < part.first + part.count; ++i) x[i] /= divisor;
    });
  }
  /// b = a' I + b' A + c' A^2 with a step's coefficients; `b` has A^2.
  static void combine(const UpdateIo<D>& io, const QuinticStep& step, const T* a, T* b,
                      std::size_t side) {
    const T of_x = static_cast<T>(step.a), of_a = static_cast<T>(step.b);
    const T of_square = static_cast<T>(step.c);
    for_ranges(io.device, side, grain / side + 1, [&](Slice part) {
      [[maybe_unused]] const typename Loops::Scope scope;
      for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        for (std::size_t j = 0; j < side; ++j)
          b[i * side + j] = of_a * a[i * side + j] + of_square * b[i * side + j];
        b[i * side + i] += of_x;
      }
    });
  }
  /// to (columns, rows) = from (rows, columns), in blocks that stay in cache.
  static void transpose(const UpdateIo<D>& io, const T* from, T* to, std::size_t rows,
                        std::size_t columns) {
    constexpr std::size_t block = 16;
    const std::size_t blocks = (columns + block - 1) / block;
    for_ranges(io.device, blocks, grain / (block * rows) + 1, [&](Slice part) {
      const std::size_t end = std::min(columns, (part.first + part.count) * block);
      for (std::size_t j = part.first * block; j < end; j += block)
        for (std::size_t i = 0; i < rows; i += block)
          for (std::size_t k = j; k < std::min(end, j + block); ++k)
            for (std::size_t n = i; n < std::min(rows, i + block); ++n)
              to[k * rows + n] = from[n * columns + k];
    });
  }
};

}  // namespace detail

template <HostDevice D>
struct Kernel<MuonOp, D> : detail::MuonKernel<D, detail::ProductsInOrder> {
  using library_kernel = Kernel;
};

}  // namespace lockstep
