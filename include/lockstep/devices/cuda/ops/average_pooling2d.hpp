/// \file
/// AveragePooling2D on a GPU: y is the mean of a window's taps inside the image, as in Keras.
/// Invariant: padding counts neither in the sum nor in the number of taps. Windows of more than 16
/// taps are summed in double.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/pooling2d.hpp"
#include "lockstep/layers/pooling/average_pooling2d.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char average_pooling2d_text[] = R"cuda(
#if POOL_ROWS * POOL_COLUMNS > 16
typedef double Sum;
#else
typedef float Sum;
#endif

// y = sum of the taps / number of taps inside the image.
KERNEL(forward)(const A* __restrict__ x, A* __restrict__ y, i64 n) {
  FOR_EACH(i, n) {
    const Taps t = taps_at(i);
    Sum sum = 0;
    for (int r = t.top; r < t.bottom; ++r)
      for (int c = t.left; c < t.right; ++c)
        sum += get(x[t.in + (r * IN_COLUMNS + c) * CHANNELS]);
    y[i] = put<A>((float)(sum / ((t.bottom - t.top) * (t.right - t.left))));
  }
}

// The number of taps of window `i` along an axis that lie inside the image.
__device__ inline int inside(int i, int stride, int before, int pool, int in) {
  const int first = i * stride - before;
  return PADDED ? min(pool, in - first) - max(0, -first) : pool;
}

// dx = sum over the windows that contain the input of dy / taps of the window.
KERNEL(backward)(const A* __restrict__ dy, A* __restrict__ dx, i64 n) {
  FOR_EACH(i, n) {
    const Windows w = windows_at(i);
    Sum sum = 0;
    for (int r = w.top; r < w.bottom; ++r)
      for (int c = w.left; c < w.right; ++c) {
        const int taps = inside(r, ROW_STRIDE, ROWS_BEFORE, POOL_ROWS, IN_ROWS) *
                         inside(c, COLUMN_STRIDE, COLUMNS_BEFORE, POOL_COLUMNS, IN_COLUMNS);
        sum += get(dy[w.out + (r * OUT_COLUMNS + c) * CHANNELS]) / taps;
      }
    dx[i] = put<A>((float)sum);
  }
}
)cuda";

}  // namespace detail::cuda

/// Backward needs neither x nor y, only dy and the shape.
template <class Precision>
struct Kernel<AveragePooling2DOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;

  static void forward(const AveragePooling2DOp& op, const Io<D>& io) {
    run(op, io.device, "forward", io.step.count * op.out().size(), io.x[0], io.y);
  }
  static void backward(const AveragePooling2DOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    run(op, io.device, "backward", io.step.count * op.window.in.size(), io.dy, io.dx[0]);
  }

 private:
  static constexpr detail::cuda::Source source{
      "average_pooling2d", detail::cuda::average_pooling2d_text, detail::cuda::pooling2d_functions};
  template <class A>
  static void run(const AveragePooling2DOp& op, typename D::Context& device, const char* entry,
                  std::size_t n, const A* from, A* to) {
    if (n == 0) return;
    const auto defines =
        detail::cuda::with_activation<Precision>(detail::cuda::pooling2d_defines(op.window));
    device.launch(device.kernel(source, entry, defines), detail::cuda::Grid::over(n), from, to,
                  static_cast<std::int64_t>(n));
  }
};

static_assert(HasKernel<AveragePooling2DOp, Cuda>);

}  // namespace lockstep
