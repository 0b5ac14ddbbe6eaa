/// \file
/// UpSampling2D on a GPU, nearest or bilinear (half-pixel centres). Invariant: one thread writes
/// each result; backward gathers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/layers/reshaping/up_sampling2d.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source up_sampling2d_source{"up_sampling2d", R"cuda(
#define OUT_ROWS (ROWS * HIGH)
#define OUT_COLUMNS (COLUMNS * WIDE)

// The source of result i along an axis: a fraction `part` of the way from pixel `low` to `high`.
struct Between {
  int low, high;
  float part;
};
__device__ inline Between place_of(int i, int factor, int extent) {
  Between b;
#if BILINEAR
  const int twice = 2 * factor, place = 2 * i + 1 - factor;  // in units of 1 / twice pixel
  const int low = place < 0 ? -1 : place / twice, rest = place - low * twice;
  b.low = max(low, 0);
  b.high = min(rest == 0 ? low : low + 1, extent - 1);
  b.part = (float)rest / twice;
#else
  b.low = b.high = i / factor;
  b.part = 0;
#endif
  return b;
}
// The weight of pixel `at` in result i.
__device__ inline float share(int i, int factor, int extent, int at) {
  const Between b = place_of(i, factor, extent);
  return (b.low == at ? 1 - b.part : 0.0f) + (b.high == at ? b.part : 0.0f);
}

// One thread per result; bilinear interpolates columns first, then rows.
KERNEL(forward)(const A* __restrict__ x, A* __restrict__ y, i64 n) {
  FOR_EACH(i, n) {
    const i64 image = i / (OUT_ROWS * OUT_COLUMNS * CHANNELS);
    const u32 place = (u32)(i - image * (OUT_ROWS * OUT_COLUMNS * CHANNELS));
    const u32 pixel = place / CHANNELS;
    const Between r = place_of((int)(pixel / OUT_COLUMNS), HIGH, ROWS);
    const Between c = place_of((int)(pixel % OUT_COLUMNS), WIDE, COLUMNS);
    const A* const above = x + (image * ROWS + r.low) * COLUMNS * CHANNELS + place % CHANNELS;
#if BILINEAR
    const A* const below = x + (image * ROWS + r.high) * COLUMNS * CHANNELS + place % CHANNELS;
    const float a = get(above[c.low * CHANNELS]), b = get(below[c.low * CHANNELS]);
    const float upper = a + (get(above[c.high * CHANNELS]) - a) * c.part;
    const float lower = b + (get(below[c.high * CHANNELS]) - b) * c.part;
    y[i] = put<A>(upper + (lower - upper) * r.part);
#else
    y[i] = above[c.low * CHANNELS];
#endif
  }
}

// dx = sum of dy over the results that read the pixel, times its share.
KERNEL(backward)(const A* __restrict__ dy, A* __restrict__ dx, i64 n) {
  FOR_EACH(i, n) {
    const i64 image = i / (ROWS * COLUMNS * CHANNELS);
    const u32 place = (u32)(i - image * (ROWS * COLUMNS * CHANNELS));
    const u32 pixel = place / CHANNELS;
    const int row = (int)(pixel / COLUMNS), column = (int)(pixel % COLUMNS);
    // Results farther away do not depend on this pixel.
    const int top = max(0, (row - BILINEAR) * HIGH), bottom = min(ROWS, row + 1 + BILINEAR) * HIGH;
    const int left = max(0, (column - BILINEAR) * WIDE);
    const int right = min(COLUMNS, column + 1 + BILINEAR) * WIDE;
    const A* const from =
        dy + image * (OUT_ROWS * OUT_COLUMNS * CHANNELS) + place % CHANNELS;
    float sum = 0;
    for (int r = top; r < bottom; ++r) {
      const float of_row = share(r, HIGH, ROWS, row);
      if (of_row == 0) continue;
      for (int c = left; c < right; ++c) {
        const float part = of_row * share(c, WIDE, COLUMNS, column);
        if (part != 0) sum += part * get(from[(r * OUT_COLUMNS + c) * CHANNELS]);
      }
    }
    dx[i] = put<A>(sum);
  }
}
)cuda"};

}  // namespace detail::cuda

/// Backward needs neither x nor y.
template <class Precision>
struct Kernel<UpSampling2DOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;

  static void forward(const UpSampling2DOp& op, const Io<D>& io) {
    run(op, io.device, "forward", io.step.count * op.out().size(), io.x[0], io.y);
  }
  static void backward(const UpSampling2DOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    run(op, io.device, "backward", io.step.count * op.in.size(), io.dy, io.dx[0]);
  }

 private:
  template <class A>
  static void run(const UpSampling2DOp& op, typename D::Context& device, const char* entry,
                  std::size_t n, const A* from, A* to) {
    using detail::cuda::Define;
    if (n == 0) return;
    const auto defines = detail::cuda::with_activation<Precision>(std::array{
        Define("ROWS", op.in[0]), Define("COLUMNS", op.in[1]), Define("CHANNELS", op.in[2]),
        Define("HIGH", op.size.height), Define("WIDE", op.size.width),
        Define("BILINEAR", op.interpolation == Interpolation::bilinear ? 1 : 0)});
    device.launch(device.kernel(detail::cuda::up_sampling2d_source, entry, defines),
                  detail::cuda::Grid::over(n), from, to, static_cast<std::int64_t>(n));
  }
};

static_assert(HasKernel<UpSampling2DOp, Cuda>);

}  // namespace lockstep
