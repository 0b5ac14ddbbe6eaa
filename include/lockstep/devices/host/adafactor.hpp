/// \file
/// Adafactor on every device over host memory. Invariants: means are summed in double, in the order of
/// the elements; u is computed twice rather than stored.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/devices/host/adjust.hpp"
#include "lockstep/optimizers/adafactor.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<AdafactorOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;

  /// The gradient that the rule reads, and a row of sums.
  static std::size_t scratch_bytes(const Shape& shape, const ParameterRule&) {
    return gradient_bytes(shape.size()) +
           sizeof(double) * static_cast<std::size_t>(shape.channels());
  }

  /// Updates one parameter.
  static void update(const AdafactorOp& op, const UpdateIo<D>& io) {
    const auto adjust = detail::adjust_of(io);
    T* const g = reinterpret_cast<T*>(io.scratch);
    for (std::size_t i = 0; i < io.size; ++i) g[i] = adjust(io.w[i], io.g[i]);
    const double size = rms(io, [w = io.w](std::size_t i) { return w[i]; });
    const double rate = op.rate * std::max(op.epsilon_2, size);
    if (io.slot[1] == nullptr) {
      T* const v = io.slot[0];
      const T keep = static_cast<T>(op.beta_2), share = static_cast<T>(1 - op.beta_2);
      const T epsilon = static_cast<T>(op.epsilon_1);
      for (std::size_t i = 0; i < io.size; ++i)
        v[i] = keep * v[i] + share * (g[i] * g[i] + epsilon);
      descend(op, io, rate, [=](std::size_t i) { return g[i] / std::sqrt(v[i]); });
      return;
    }
    const auto rows = static_cast<std::size_t>(io.shape[io.shape.rank - 2]);
    const auto columns = static_cast<std::size_t>(io.shape.channels());
    double* const sums = reinterpret_cast<double*>(io.scratch + gradient_bytes(io.size));
    for (std::size_t matrix = 0; matrix < io.size / (rows * columns); ++matrix)
      factor(op, g + matrix * rows * columns, io.slot[0] + matrix * rows,
             io.slot[1] + matrix * columns, rows, columns, sums);
    // u overwrites g, which the rule needs no more.
    for (std::size_t matrix = 0; matrix < io.size / (rows * columns); ++matrix) {
      const T* const r = io.slot[0] + matrix * rows;
      const T* const c = io.slot[1] + matrix * columns;
      double mean = 0;
      for (std::size_t i = 0; i < rows; ++i) mean += static_cast<double>(r[i]);
      mean /= static_cast<double>(rows);
      for (std::size_t i = 0; i < rows; ++i) {
        const T share = r[i] / static_cast<T>(mean);
        T* const u = g + (matrix * rows + i) * columns;
        for (std::size_t j = 0; j < columns; ++j)
          if (u[j] != 0) u[j] /= std::sqrt(share * c[j]);  // the root of tiny factors may be 0
      }
    }
    descend(op, io, rate, [g](std::size_t i) { return g[i]; });
  }

 private:
  static constexpr std::size_t gradient_bytes(std::size_t size) {
    return (sizeof(T) * size + sizeof(double) - 1) / sizeof(double) * sizeof(double);
  }
  template <class F>
  static double rms(const UpdateIo<D>& io, const F& value) {
    const double sum = detail::sum_in_lanes(io.size, [&](std::size_t i) {
      const auto x = static_cast<double>(value(i));
      return x * x;
    });
    return std::sqrt(sum / static_cast<double>(io.size));
  }
  /// The means of a matrix' squares over its rows and columns.
  static void factor(const AdafactorOp& op, const T* g, T* r, T* c, std::size_t rows,
                     std::size_t columns, double* sums) {
    const auto mean_of = [&](T before, double sum, std::size_t count) {
      return static_cast<T>(op.beta_2 * static_cast<double>(before) +
                            (1 - op.beta_2) * (sum / static_cast<double>(count)));
    };
    std::fill_n(sums, columns, 0.0);
    for (std::size_t i = 0; i < rows; ++i) {
      double of_row = 0;
      for (std::size_t j = 0; j < columns; ++j) {
        const auto x = static_cast<double>(g[i * columns + j]);
        const double square = x * x + op.epsilon_1;
        of_row += square;
        sums[j] += square;
      }
      r[i] = mean_of(r[i], of_row, columns);
    }
    for (std::size_t j = 0; j < columns; ++j) c[j] = mean_of(c[j], sums[j], rows);
  }
  /// w -= rate u / max(1, rms(u) / threshold).
  template <class F>
  static void descend(const AdafactorOp& op, const UpdateIo<D>& io, double rate, const F& u) {
    const T step = static_cast<T>(rate / std::max(1.0, rms(io, u) / op.clip_threshold));
    for (std::size_t i = 0; i < io.size; ++i) io.w[i] -= step * u(i);
  }
};

}  // namespace lockstep
