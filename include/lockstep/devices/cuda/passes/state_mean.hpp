/// \file
/// The mean of layer state (such as running statistics) over slices, weighted by their examples:
/// sum = count * state, sum += other sum, state = sum / count. Sums are in double.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/state_mean.hpp"
#include "lockstep/devices/cuda/device.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source state_mean_source{"state_mean", R"cuda(
KERNEL(weigh_state)(const float* __restrict__ state, double* __restrict__ sum, double count,
                    i64 n) {
  FOR_EACH(i, n) sum[i] = count * state[i];
}
KERNEL(add_sums)(double* __restrict__ y, const double* __restrict__ x, i64 n) {
  FOR_EACH(i, n) y[i] += x[i];
}
KERNEL(compute_mean)(float* __restrict__ state, const double* __restrict__ sum, double count,
                     i64 n) {
  FOR_EACH(i, n) state[i] = (float)(sum[i] / count);
}
)cuda"};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<StateMean, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using Io = StateMeanIo<BasicCuda<Precision>>;

  /// sum = count * state.
  static void weigh(const Io& io) {
    run(io.device, "weigh_state", io.size, io.state, io.sum, static_cast<double>(io.count));
  }
  /// y += x, the sums of another slice.
  static void add(CudaContext& context, double* y, const double* x, std::size_t n) {
    run(context, "add_sums", n, y, x);
  }
  /// state = sum / count.
  static void write_mean(const Io& io) {
    run(io.device, "compute_mean", io.size, io.state, io.sum, static_cast<double>(io.count));
  }

 private:
  template <class... Ts>
  static void run(CudaContext& context, const char* entry, std::size_t n, const Ts&... arguments) {
    if (n == 0) return;
    context.launch(context.kernel(detail::cuda::state_mean_source, entry, {}),
                   detail::cuda::Grid::over(n), arguments..., static_cast<std::int64_t>(n));
  }
};

}  // namespace lockstep
