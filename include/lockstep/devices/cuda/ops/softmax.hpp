/// \file
/// Softmax and LogSoftmax on a GPU. Invariant: the maximum of a row is subtracted first, so no
/// exponential overflows.
///
///     softmax:      dx = y * (dy - sum(dy * y))
///     log softmax:  dx = dy - exp(y) * sum(dy)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/last_axis.hpp"
#include "lockstep/layers/activations/softmax.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char softmax_text[] = R"cuda(
// y may be x: each thread reads and writes its own elements.
KERNEL(forward)(const A* x, A* y, i64 rows) {
  FOR_EACH_ROW(row) {
    const A* const from = x + row * WIDTH;
    A* const to = y + row * WIDTH;
    float largest = as_float(0xFF800000u);
    FOR_MINE(k) largest = fmaxf(largest, get(from[k]));
    largest = row_max(largest);
    Part part = 0;
    FOR_MINE(k) part += expf(get(from[k]) - largest);
    const float sum = (float)row_sum(part);
#if LOGARITHM
    const float log_of_sum = logf(sum);
    FOR_MINE(k) to[k] = put<A>(get(from[k]) - largest - log_of_sum);
#else
    FOR_MINE(k) to[k] = put<A>(expf(get(from[k]) - largest) / sum);
#endif
  }
}
// The sum of a row is in float for short rows, in double for long ones.
KERNEL(backward)(const A* __restrict__ y, const A* __restrict__ dy, A* __restrict__ dx,
                 i64 rows) {
  FOR_EACH_ROW(row) {
    const A* const known = y + row * WIDTH;
    const A* const from = dy + row * WIDTH;
    A* const to = dx + row * WIDTH;
    Part part = 0;
#if LOGARITHM
    FOR_MINE(k) part += get(from[k]);
    const float sum = (float)row_sum(part);
    FOR_MINE(k) to[k] = put<A>(get(from[k]) - expf(get(known[k])) * sum);
#else
    FOR_MINE(k) part += get(from[k]) * get(known[k]);
    const float sum = (float)row_sum(part);
    FOR_MINE(k) to[k] = put<A>(get(known[k]) * (get(from[k]) - sum));
#endif
  }
}
)cuda";

/// Keeps y, from which both gradients follow.
template <class Op, class Precision, bool Logarithm>
struct SoftmaxKernel : KernelTraits {
  using D = BasicCuda<Precision>;
  static constexpr bool keeps_y = true, in_place = true;

  static void forward(const Op& op, const Io<D>& io) {
    if (io.step.count > 0) launch(op, io, "forward", io.x[0], io.y);
  }
  static void backward(const Op& op, const Io<D>& io) {
    if (io.step.count > 0 && io.dx[0] != nullptr) launch(op, io, "backward", io.y, io.dy, io.dx[0]);
  }

 private:
  static constexpr Source source{"softmax", softmax_text, rows_functions};
  /// One team of threads per row.
  template <class... Ts>
  static void launch(const Op& op, const Io<D>& io, const char* entry, const Ts&... pointers) {
    const Rows each(static_cast<std::size_t>(op.in.channels()));
    const std::size_t rows = io.step.count * op.in.size() / each.width;
    const auto defines = with_activation<Precision>(std::array{
        Define("WIDTH", each.width), Define("TEAM", each.team), Define("LOGARITHM", Logarithm)});
    io.device.launch(io.device.kernel(source, entry, defines), each.grid(rows), pointers...,
                     static_cast<std::int64_t>(rows));
  }
};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<SoftmaxOp, BasicCuda<Precision>>
    : detail::cuda::SoftmaxKernel<SoftmaxOp, Precision, false> {
  using library_kernel = Kernel;
};

template <class Precision>
struct Kernel<LogSoftmaxOp, BasicCuda<Precision>>
    : detail::cuda::SoftmaxKernel<LogSoftmaxOp, Precision, true> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<SoftmaxOp, Cuda> && HasKernel<LogSoftmaxOp, Cuda>);

}  // namespace lockstep
