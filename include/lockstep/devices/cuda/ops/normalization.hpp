/// \file
/// Normalization on a GPU: y = (x - mean) / max(sqrt(variance), 1e-7), with adapted statistics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/layers/preprocessing/normalization.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source normalization_source{"normalization", R"cuda(
// Written so that NaN propagates.
__device__ inline float deviation(float variance) {
  const float root = sqrtf(variance);
  return root < 1e-7f ? 1e-7f : root;
}
// `batch`: x before rounding, or null.
KERNEL(forward)(const A* __restrict__ x, const float* __restrict__ batch, A* __restrict__ y,
                const float* __restrict__ state, i64 n) {
  FOR_EACH(i, n) {
    const int k = (int)(i % CHANNELS);
    const float v = batch ? batch[i] : get(x[i]);
    y[i] = put<A>((v - state[k]) / deviation(state[CHANNELS + k]));
  }
}
KERNEL(backward)(const A* __restrict__ dy, A* __restrict__ dx, const float* __restrict__ state,
                 i64 n) {
  FOR_EACH(i, n)
    dx[i] = put<A>(get(dy[i]) / deviation(state[CHANNELS + (int)(i % CHANNELS)]));
}
)cuda"};

}  // namespace detail::cuda

/// Backward needs neither x nor y; the statistics are state that training does not change.
template <class Precision>
struct Kernel<NormalizationOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;

  static void forward(const NormalizationOp& op, const Io<D>& io) {
    launch(op, io, "forward", io.x[0], io.batch, io.y, io.state);
  }
  static void backward(const NormalizationOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) launch(op, io, "backward", io.dy, io.dx[0], io.state);
  }

 private:
  template <class... Ts>
  static void launch(const NormalizationOp& op, const Io<D>& io, const char* entry,
                     const Ts&... pointers) {
    const std::size_t n = io.step.count * op.in.size();
    if (n == 0) return;
    const auto defines = detail::cuda::with_activation<Precision>(
        std::array{detail::cuda::Define("CHANNELS", op.in.channels())});
    io.device.launch(io.device.kernel(detail::cuda::normalization_source, entry, defines),
                     detail::cuda::Grid::over(n), pointers..., static_cast<std::int64_t>(n));
  }
};

static_assert(HasKernel<NormalizationOp, Cuda>);

}  // namespace lockstep
