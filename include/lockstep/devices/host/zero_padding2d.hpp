/// \file
/// ZeroPadding2D on every device over host memory: copies of rows.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/reshaping/zero_padding2d.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<ZeroPadding2DOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using A = ActivationOf<D>;

  static void forward(const ZeroPadding2DOp& op, const Io<D>& io) {
    std::fill_n(io.y, io.step.count * op.out().size(), A(0));
    for_each_row(op, io.step.count, [&](std::size_t small, std::size_t large, std::size_t length) {
      std::copy_n(io.x + small, length, io.y + large);
    });
  }
  static void backward(const ZeroPadding2DOp& op, const Io<D>& io) {
    if (io.dx == nullptr) return;
    for_each_row(op, io.step.count, [&](std::size_t small, std::size_t large, std::size_t length) {
      std::copy_n(io.dy + large, length, io.dx + small);
    });
  }

 private:
  /// Calls row(offset in x, offset in y, elements) for each row of each image of x.
  template <class Row>
  static void for_each_row(const ZeroPadding2DOp& op, std::size_t count, const Row& row) {
    const auto at = [](int extent) { return static_cast<std::size_t>(extent); };
    const std::size_t rows = at(op.in[0]), length = at(op.in[1]) * at(op.in[2]),
                      out_rows = at(op.out()[0]), out_length = at(op.out()[1]) * at(op.in[2]),
                      left = at(op.edges.left) * at(op.in[2]);
    for (std::size_t n = 0; n < count; ++n)
      for (std::size_t r = 0; r < rows; ++r)
        row((n * rows + r) * length, (n * out_rows + at(op.edges.top) + r) * out_length + left,
            length);
  }
};

}  // namespace lockstep
