/// \file
/// MaxPooling2D on a GPU. Invariants: the index of the winning tap is saved, one byte per output if
/// the window has at most 256 taps, else four; ties go to the first tap in row-major order, and the
/// last NaN wins over all others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/pooling2d.hpp"
#include "lockstep/layers/pooling/max_pooling2d.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char max_pooling2d_text[] = R"cuda(
#if POOL_ROWS * POOL_COLUMNS <= 256
typedef unsigned char Winner;
#else
typedef u32 Winner;
#endif

// y = the largest tap; `winners` its index in the window, padding included.
KERNEL(forward)(const A* __restrict__ x, A* __restrict__ y, Winner* __restrict__ winners, i64 n) {
  FOR_EACH(i, n) {
    const Taps t = taps_at(i);
    float best = 0;
    int winner = -1;
    for (int r = t.top; r < t.bottom; ++r)
      for (int c = t.left; c < t.right; ++c) {
        const float v = get(x[t.in + (r * IN_COLUMNS + c) * CHANNELS]);
        if (winner < 0 || v > best || v != v) {
          best = v;
          winner = r * POOL_COLUMNS + c;
        }
      }
    y[i] = put<A>(best);
    winners[i] = (Winner)winner;
  }
}

// dx = sum of dy over the windows in which the input won.
KERNEL(backward)(const A* __restrict__ dy, A* __restrict__ dx, const Winner* __restrict__ winners,
                 i64 n) {
  FOR_EACH(i, n) {
    const Windows w = windows_at(i);
    float sum = 0;
    for (int r = w.top; r < w.bottom; ++r)
      for (int c = w.left; c < w.right; ++c) {
        const i64 out = w.out + (r * OUT_COLUMNS + c) * CHANNELS;
        const int tap = (w.row - r * ROW_STRIDE) * POOL_COLUMNS + w.column - c * COLUMN_STRIDE;
        if ((int)winners[out] == tap) sum += get(dy[out]);
      }
    dx[i] = put<A>(sum);
  }
}
)cuda";

}  // namespace detail::cuda

/// Keeps neither x nor y, only the winners.
template <class Precision>
struct Kernel<MaxPooling2DOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  /// Bytes of winners per example.
  static constexpr std::size_t saved(const MaxPooling2DOp& op) {
    const bool fits_a_byte = op.window.pool.height * op.window.pool.width <= 256;
    return op.out().size() * (fits_a_byte ? 1 : sizeof(std::uint32_t));
  }

  static void forward(const MaxPooling2DOp& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    io.device.launch(io.device.kernel(source, "forward", defines(op)), detail::cuda::Grid::over(n),
                     io.x[0], io.y, io.saved, static_cast<std::int64_t>(n));
  }
  static void backward(const MaxPooling2DOp& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.window.in.size();
    if (n == 0 || io.dx[0] == nullptr) return;
    io.device.launch(io.device.kernel(source, "backward", defines(op)), detail::cuda::Grid::over(n),
                     io.dy, io.dx[0], io.saved, static_cast<std::int64_t>(n));
  }

 private:
  static constexpr detail::cuda::Source source{"max_pooling2d", detail::cuda::max_pooling2d_text,
                                               detail::cuda::pooling2d_functions};
  static auto defines(const MaxPooling2DOp& op) {
    return detail::cuda::with_activation<Precision>(detail::cuda::pooling2d_defines(op.window));
  }
};

static_assert(HasKernel<MaxPooling2DOp, Cuda>);

}  // namespace lockstep
