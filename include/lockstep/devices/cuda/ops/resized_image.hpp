/// \file
/// Resizing and CenterCrop on a GPU: one element per thread, and in backward one element of dx,
/// which gathers from the pixels that read it. Invariant: places are whole numbers, as on the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/layers/preprocessing/center_crop.hpp"
#include "lockstep/layers/preprocessing/resizing.hpp"

namespace lockstep {
namespace detail::cuda {

/// The window of WINDOW_ROWS x WINDOW_COLUMNS pixels from (WINDOW_ROW, WINDOW_COLUMN) on is resized
/// to OUT_ROWS x OUT_COLUMNS.
inline constexpr Source resized_image_source{"resized_image", R"cuda(
struct Place {
  int low, high;
  float part;
  // The weight of pixel `at`.
  __device__ float share(int at) const {
    return (low == at ? 1 - part : 0.0f) + (high == at ? part : 0.0f);
  }
};
__device__ inline Place place(int i, int out, int extent) {
  const i64 center = (2 * (i64)i + 1) * extent, whole = 2 * (i64)out;
#if NEAREST
  const int at = (int)(center / whole);
  const Place p = {at, at, 0};
#else
  const i64 position = center - out;
  const int low = position < 0 ? -1 : (int)(position / whole);
  const i64 rest = position - low * whole;
  const Place p = {max(low, 0), min(rest == 0 ? low : low + 1, extent - 1),
                   (float)((double)rest / (double)whole)};
#endif
  return p;
}
// Not a multiplication by 0 where only one of the two counts: the other may be infinite.
__device__ inline float blend(float low, float high, float part) {
  return part == 0 ? low : low * (1 - part) + high * part;
}

KERNEL(forward)(const A* __restrict__ x, A* __restrict__ y, i64 n) {
  FOR_EACH(i, n) {
    const i64 pixel = i / CHANNELS, row = pixel / OUT_COLUMNS;
    const Place down = place((int)(row % OUT_ROWS), OUT_ROWS, WINDOW_ROWS);
    const Place across = place((int)(pixel % OUT_COLUMNS), OUT_COLUMNS, WINDOW_COLUMNS);
    const A* const from = x + row / OUT_ROWS * (IN_ROWS * IN_COLUMNS * CHANNELS) +
                          (WINDOW_ROW * IN_COLUMNS + WINDOW_COLUMN) * CHANNELS + i % CHANNELS;
    const A* const above = from + down.low * (IN_COLUMNS * CHANNELS);
    const A* const below = from + down.high * (IN_COLUMNS * CHANNELS);
    const int low = across.low * CHANNELS, high = across.high * CHANNELS;
    y[i] = put<A>(blend(blend(get(above[low]), get(above[high]), across.part),
                        blend(get(below[low]), get(below[high]), across.part), down.part));
  }
}

// The pixels of the result that may read pixel `at`.
struct Readers {
  int begin, end;
};
__device__ inline Readers readers(int at, int out, int extent) {
  const int begin = at == 0 ? 0 : (int)((2 * (i64)at - 1) * out / (2 * extent)) - 1;
  const int end = at == extent - 1 ? out : (int)((2 * (i64)at + 3) * out / (2 * extent)) + 2;
  const Readers r = {max(begin, 0), min(end, out)};
  return r;
}
KERNEL(backward)(const A* __restrict__ dy, A* __restrict__ dx, i64 n) {
  FOR_EACH(i, n) {
    const i64 pixel = i / CHANNELS, row = pixel / IN_COLUMNS;
    const int r = (int)(row % IN_ROWS) - WINDOW_ROW, c = (int)(pixel % IN_COLUMNS) - WINDOW_COLUMN;
    float sum = 0;
    if (r >= 0 && r < WINDOW_ROWS && c >= 0 && c < WINDOW_COLUMNS) {
      const A* const from = dy + row / IN_ROWS * (OUT_ROWS * OUT_COLUMNS * CHANNELS) + i % CHANNELS;
      const Readers rows = readers(r, OUT_ROWS, WINDOW_ROWS);
      const Readers columns = readers(c, OUT_COLUMNS, WINDOW_COLUMNS);
      for (int p = rows.begin; p < rows.end; ++p) {
        const float of_row = place(p, OUT_ROWS, WINDOW_ROWS).share(r);
        if (of_row == 0) continue;
        for (int q = columns.begin; q < columns.end; ++q) {
          const float both = of_row * place(q, OUT_COLUMNS, WINDOW_COLUMNS).share(c);
          if (both != 0) sum += both * get(from[(p * OUT_COLUMNS + q) * CHANNELS]);
        }
      }
    }
    dx[i] = put<A>(sum);
  }
}
)cuda"};

}  // namespace detail::cuda

/// Backward needs neither x nor y.
template <ResizedImageOp Op, class Precision>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;

  static void forward(const Op& op, const Io<D>& io) {
    run(op, io.device, "forward", io.step.count * op.out().size(), io.x[0], io.y);
  }
  static void backward(const Op& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    run(op, io.device, "backward", io.step.count * op.in.size(), io.dy, io.dx[0]);
  }

 private:
  template <class A>
  static void run(const Op& op, typename D::Context& device, const char* entry, std::size_t n,
                  const A* from, A* to) {
    using detail::cuda::Define;
    if (n == 0) return;
    const ImagePart window = op.window();
    const auto defines = detail::cuda::with_activation<Precision>(std::array{
        Define("IN_ROWS", op.in[0]), Define("IN_COLUMNS", op.in[1]), Define("CHANNELS", op.in[2]),
        Define("OUT_ROWS", op.out()[0]), Define("OUT_COLUMNS", op.out()[1]),
        Define("WINDOW_ROW", window.row), Define("WINDOW_COLUMN", window.column),
        Define("WINDOW_ROWS", window.height), Define("WINDOW_COLUMNS", window.width),
        Define("NEAREST", op.interpolation == Interpolation::nearest ? 1 : 0)});
    device.launch(device.kernel(detail::cuda::resized_image_source, entry, defines),
                  detail::cuda::Grid::over(n), from, to, static_cast<std::int64_t>(n));
  }
};

static_assert(HasKernel<ResizingOp, Cuda> && HasKernel<CenterCropOp, Cuda>);

}  // namespace lockstep
