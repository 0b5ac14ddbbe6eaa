/// \file
/// TiedDense on every device over host memory: y = x m', dm = dy' x, dx = dy m. Invariant: sums over
/// examples are in double, each element is written by one thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/tied_dense.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<TiedDenseOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true;

  static void forward(const TiedDenseOp& op, const Io<D>& io) {
    const std::size_t rows = size(op.rows), columns = size(op.columns),
                      vectors = io.step.count * op.vectors();
    detail::for_ranges(io.device, vectors, 4096 / columns / rows + 1, [&](Slice part) {
      for (std::size_t n = part.first; n < part.first + part.count; ++n)
        for (std::size_t r = 0; r < rows; ++r) {
          T sum = 0;
          for (std::size_t c = 0; c < columns; ++c)
            sum += T(io.x[0][n * columns + c]) * io.w[r * columns + c];
          io.y[n * rows + r] = A(sum);
        }
    });
  }
  static void backward(const TiedDenseOp& op, const Io<D>& io) {
    const std::size_t rows = size(op.rows), columns = size(op.columns),
                      vectors = io.step.count * op.vectors();
    detail::for_ranges(io.device, rows, 4096 / columns + 1, [&](Slice part) {
      for (std::size_t r = part.first; r < part.first + part.count; ++r)
        for (std::size_t first = 0; first < columns; first += block) {
          const std::size_t width = std::min(block, columns - first);
          double sum[block] = {};
          for (std::size_t n = 0; n < vectors; ++n) {
            const double dy = static_cast<double>(io.dy[n * rows + r]);
            const A* const x = io.x[0] + n * columns + first;
            for (std::size_t c = 0; c < width; ++c) sum[c] += dy * static_cast<double>(x[c]);
          }
          for (std::size_t c = 0; c < width; ++c)
            io.dw[r * columns + first + c] = static_cast<T>(sum[c]);
        }
    });
    if (io.dx[0] == nullptr) return;
    detail::for_ranges(io.device, vectors, 4096 / columns / rows + 1, [&](Slice part) {
      for (std::size_t n = part.first; n < part.first + part.count; ++n)
        for (std::size_t first = 0; first < columns; first += block) {
          const std::size_t width = std::min(block, columns - first);
          T sum[block] = {};
          for (std::size_t r = 0; r < rows; ++r) {
            const T dy = T(io.dy[n * rows + r]);
            const T* const w = io.w + r * columns + first;
            for (std::size_t c = 0; c < width; ++c) sum[c] += dy * w[c];
          }
          for (std::size_t c = 0; c < width; ++c) io.dx[0][n * columns + first + c] = A(sum[c]);
        }
    });
  }

 private:
  static constexpr std::size_t block = 32;  // columns accumulated per pass
  static std::size_t size(int extent) { return static_cast<std::size_t>(extent); }
};

}  // namespace lockstep
