/// \file
/// Concatenate on every device over host memory: copies of rows.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/merging/concatenate.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<ConcatenateOp, D> : KernelTraits {
  using library_kernel = Kernel;
  static void forward(const ConcatenateOp& op, const Io<D>& io) {
    for_parts(op, io, [&](std::size_t k, std::size_t in_x, std::size_t in_y, std::size_t size) {
      std::copy_n(io.x[k] + in_x, size, io.y + in_y);
    });
  }
  static void backward(const ConcatenateOp& op, const Io<D>& io) {
    for_parts(op, io, [&](std::size_t k, std::size_t in_x, std::size_t in_y, std::size_t size) {
      if (io.dx[k] != nullptr) std::copy_n(io.dy + in_y, size, io.dx[k] + in_x);
    });
  }

 private:
  /// Calls copy(operand, first element in x, in y, elements) for each part of each row of y.
  template <class Copy>
  static void for_parts(const ConcatenateOp& op, const Io<D>& io, const Copy& copy) {
    const std::size_t rows = op.rows(), size = op.out().size() / rows;
    detail::for_ranges(io.device, io.step.count * rows, 16384 / size + 1, [&](Slice part) {
      for (std::size_t row = part.first; row < part.first + part.count; ++row)
        for (std::size_t k = 0, at = row * size; k < op.operands(); ++k) {
          const std::size_t own = io.x_size[k] / rows;
          copy(k, row * own, at, own);
          at += own;
        }
    });
  }
};

}  // namespace lockstep
