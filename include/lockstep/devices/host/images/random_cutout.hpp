/// \file
/// RandomCutout on every device over host memory. Invariant: the row, then the column of the
/// square's centre are drawn by `drawn_span` from the example's stream.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/numbers/drawn_span.hpp"
#include "lockstep/devices/host/images/image_sampling.hpp"
#include "lockstep/layers/preprocessing/random_cutout.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<RandomCutoutOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using A = detail::ElementOf<D>;
  static constexpr bool in_place = true;

  static void forward(const RandomCutoutOp& op, const Io<D>& io) {
    apply(op, io, io.x[0], io.y, static_cast<A>(op.fill));
  }
  /// Draws the square again. Its pixels do not depend on x, so their gradient is 0.
  static void backward(const RandomCutoutOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) apply(op, io, io.dy, io.dx[0], A(0));
  }

 private:
  static void apply(const RandomCutoutOp& op, const Io<D>& io, const A* from, A* to, A fill) {
    if (from != to) std::copy_n(from, io.step.count * op.in.size(), to);
    if (!io.step.training) return;
    const auto width = static_cast<std::size_t>(op.in[1]),
               channels = static_cast<std::size_t>(op.in[2]);
    for (std::size_t n = 0; n < io.step.count; ++n, to += op.in.size()) {
      Philox draws = detail::example_noise(io, n);
      const DrawnSpan rows = drawn_span(op.size, op.in[0], draws);
      const DrawnSpan columns = drawn_span(op.size, op.in[1], draws);
      for (std::size_t r = rows.begin; r < rows.end; ++r)
        std::fill_n(to + (r * width + columns.begin) * channels,
                    (columns.end - columns.begin) * channels, fill);
    }
  }
};

}  // namespace lockstep
