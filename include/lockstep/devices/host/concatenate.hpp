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
    for_rows(op, io, [&](std::size_t row, std::size_t first, std::size_t second) {
      auto* const y = io.y + row * (first + second);
      std::copy_n(io.x[0] + row * first, first, y);
      std::copy_n(io.x[1] + row * second, second, y + first);
    });
  }
  static void backward(const ConcatenateOp& op, const Io<D>& io) {
    for_rows(op, io, [&](std::size_t row, std::size_t first, std::size_t second) {
      const auto* const dy = io.dy + row * (first + second);
      if (io.dx[0] != nullptr) std::copy_n(dy, first, io.dx[0] + row * first);
      if (io.dx[1] != nullptr) std::copy_n(dy + first, second, io.dx[1] + row * second);
    });
  }

 private:
  /// Calls copy(row, channels of x, channels of x2) for each row of the last axis.
  template <class Copy>
  static void for_rows(const ConcatenateOp& op, const Io<D>& io, const Copy& copy) {
    const auto first = static_cast<std::size_t>(op.in.channels()),
               second = static_cast<std::size_t>(op.other);
    detail::for_ranges(io.device, io.step.count * op.in.size() / first,
                       16384 / (first + second) + 1, [&](Slice rows) {
                         for (std::size_t row = rows.first; row < rows.first + rows.count; ++row)
                           copy(row, first, second);
                       });
  }
};

}  // namespace lockstep
