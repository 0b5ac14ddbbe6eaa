/// \file
/// Dot on every device over host memory. Invariant: threads divide the examples, so the bits do not
/// depend on their number.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/merging/dot.hpp"

namespace lockstep {

/// Saves 1 / length of each vector of x, then of x2, then y, all unrounded, if they are normalized.
template <HostDevice D>
struct Kernel<DotOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true;
  static constexpr std::size_t saved(const DotOp& op) { return values(op) * sizeof(T); }

  static void forward(const DotOp& op, const Io<D>& io) {
    for_examples(op, io, [&](std::size_t n) {
      const detail::DotRows a = op.rows(), b = op.other_rows();
      const A* const x = io.x[0] + n * op.in.size();
      const A* const x2 = io.x[1] + n * op.other.size();
      T* const scales = saved_of(op, io, n);  // (a.count + b.count), then y
      if (op.normalize) {
        write_scales(a, x, scales);
        write_scales(b, x2, scales + a.count);
      }
      for (std::size_t i = 0; i < a.count; ++i)
        for (std::size_t first = 0; first < b.count; first += block) {
          const std::size_t width = std::min(block, b.count - first);
          std::array<T, block> sum{};
          std::array<const A*, block> row{};
          for (std::size_t j = 0; j < width; ++j) row[j] = x2 + b.index(first + j);
          const A* const of_x = x + a.index(i);
          for (std::size_t k = 0; k < a.length; ++k) {
            const T v = T(of_x[k * a.step]);
            for (std::size_t j = 0; j < width; ++j) sum[j] += v * T(row[j][k * b.step]);
          }
          for (std::size_t j = 0; j < width; ++j) {
            const std::size_t at = i * b.count + first + j;
            if (op.normalize) {
              sum[j] *= scales[i] * scales[a.count + first + j];
              scales[a.count + b.count + at] = sum[j];
            }
            io.y[n * a.count * b.count + at] = A(sum[j]);
          }
        }
    });
  }

  static void backward(const DotOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr && io.dx[1] == nullptr) return;
    for_examples(op, io, [&](std::size_t n) {
      const detail::DotRows a = op.rows(), b = op.other_rows();
      const A* const x = io.x[0] + n * op.in.size();
      const A* const x2 = io.x[1] + n * op.other.size();
      const A* const dy = io.dy + n * a.count * b.count;
      const T* const scales = saved_of(op, io, n);
      const T* const y = op.normalize ? scales + a.count + b.count : nullptr;
      const T* const of_b = op.normalize ? scales + a.count : nullptr;
      if (io.dx[0] != nullptr)
        write_gradient(Side{a, x, scales, b.count}, Side{b, x2, of_b, 1}, dy, y,
                       io.dx[0] + n * op.in.size());
      if (io.dx[1] != nullptr)
        write_gradient(Side{b, x2, of_b, 1}, Side{a, x, scales, b.count}, dy, y,
                       io.dx[1] + n * op.other.size());
    });
  }

 private:
  static constexpr std::size_t block = 64;    // sums at a time
  static constexpr T largest_scale = T(1e7);  // Keras' epsilon is 1e-7

  static constexpr std::size_t values(const DotOp& op) {
    return op.normalize ? op.rows().count + op.other_rows().count + op.out().size() : 0;
  }
  static T* saved_of(const DotOp& op, const Io<D>& io, std::size_t n) {
    return op.normalize ? reinterpret_cast<T*>(io.saved) + n * values(op) : nullptr;
  }
  template <class Body>
  static void for_examples(const DotOp& op, const Io<D>& io, const Body& body) {
    const std::size_t terms = op.out().size() * op.rows().length;
    detail::for_ranges(io.device, io.step.count, 16384 / terms + 1, [&](Slice part) {
      for (std::size_t n = part.first; n < part.first + part.count; ++n) body(n);
    });
  }

  static void write_scales(const detail::DotRows& rows, const A* x, T* scales) {
    for (std::size_t r = 0; r < rows.count; ++r) {
      T sum = 0;
      for (std::size_t k = 0; k < rows.length; ++k) {
        const T v = T(x[rows.index(r) + k * rows.step]);
        sum += v * v;
      }
      scales[r] = std::min(1 / std::sqrt(sum), largest_scale);
    }
  }

  /// One of the two values; `stride` is the distance of its rows in y.
  struct Side {
    detail::DotRows rows;
    const A* x;
    const T* scales;  // null: not normalized
    std::size_t stride;
  };
  /// dx[r, k] = sum over m of dy[r, m] other[m, k]. If the vectors are normalized, other[m] is, and
  /// the part along x[r] does not change the result: dx = scale (dx - scale x sum of dy y).
  static void write_gradient(const Side& of, const Side& other, const A* dy, const T* y, A* dx) {
    for (std::size_t r = 0; r < of.rows.count; ++r) {
      T along = 0;
      if (of.scales != nullptr && of.scales[r] != largest_scale)
        for (std::size_t m = 0; m < other.rows.count; ++m) {
          const std::size_t at = r * of.stride + m * other.stride;
          along += T(dy[at]) * y[at];
        }
      for (std::size_t first = 0; first < of.rows.length; first += block) {
        const std::size_t width = std::min(block, of.rows.length - first);
        std::array<T, block> sum{};
        for (std::size_t m = 0; m < other.rows.count; ++m) {
          T slope = T(dy[r * of.stride + m * other.stride]);
          if (other.scales != nullptr) slope *= other.scales[m];
          const A* const term = other.x + other.rows.index(m) + first * other.rows.step;
          for (std::size_t k = 0; k < width; ++k) sum[k] += slope * T(term[k * other.rows.step]);
        }
        for (std::size_t k = 0; k < width; ++k) {
          const std::size_t at = of.rows.index(r) + (first + k) * of.rows.step;
          if (of.scales != nullptr)
            sum[k] = of.scales[r] * (sum[k] - T(of.x[at]) * of.scales[r] * along);
          dx[at] = A(sum[k]);
        }
      }
    }
  }
};

}  // namespace lockstep
