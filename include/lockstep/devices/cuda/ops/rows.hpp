/// \file
/// Ops along the last axis that are given as text, on a GPU. Invariant: a team of threads per row,
/// as of Softmax. `CudaText<Op>::rows` defines the kernels `forward(const A* x, A* y, i64 rows)`
/// and `backward(const A* x, const A* dy, A* dx, i64 rows)` by the helpers of last_axis.hpp;
/// OUT_WIDTH is the number of elements of a row of y.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/last_axis.hpp"
#include "lockstep/devices/cuda/support/scalar_text.hpp"

namespace lockstep {

/// Keeps x.
template <class Op, class Precision>
  requires requires { CudaText<Op>::rows; }
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool keeps_x = true;

  static void forward(const Op& op, const Io<D>& io) {
    if (io.step.count > 0) launch(op, io, "forward", io.x[0], io.y);
  }
  static void backward(const Op& op, const Io<D>& io) {
    if (io.step.count > 0 && io.dx[0] != nullptr)
      launch(op, io, "backward", io.x[0], io.dy, io.dx[0]);
  }

 private:
  template <class... Ts>
  static void launch(const Op& op, const Io<D>& io, const char* entry, const Ts&... pointers) {
    constexpr detail::cuda::Source source{"rows", CudaText<Op>::rows, detail::cuda::rows_functions};
    const detail::cuda::Rows each(static_cast<std::size_t>(op.in.channels()));
    const std::size_t rows = io.step.count * op.in.size() / each.width;
    const auto defines = detail::cuda::with_activation<Precision>(std::array{
        detail::cuda::Define("WIDTH", each.width), detail::cuda::Define("TEAM", each.team),
        detail::cuda::Define("OUT_WIDTH", op.out().channels())});
    io.device.launch(io.device.kernel(source, entry, defines), each.grid(rows), pointers...,
                     static_cast<std::int64_t>(rows));
  }
};

}  // namespace lockstep
