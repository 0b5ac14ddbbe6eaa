/// \file
/// GlobalAveragePooling2D and GlobalMaxPooling2D on a GPU. Invariants: a block handles one image
/// and up to 32 channels; equal maxima share the gradient; NaN propagates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/columns.hpp"
#include "lockstep/layers/pooling/global_average_pooling2d.hpp"
#include "lockstep/layers/pooling/global_max_pooling2d.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char global_pooling2d_text[] = R"cuda(
// This block's image.
#define IMAGE ((i64)PART)

// y = mean over the pixels, in double for long columns.
KERNEL(mean)(const A* __restrict__ x, A* __restrict__ y) {
#if PIXELS / ROWS > 16
  double sum = 0;
#else
  float sum = 0;
#endif
  x += IMAGE * PIXELS * CHANNELS + CHANNEL;
  if (CHANNEL < CHANNELS)
    for (int i = ROW; i < PIXELS; i += ROWS) sum += get(x[(i64)i * CHANNELS]);
  sum = column_sum(sum);
  if (ROW == 0 && CHANNEL < CHANNELS) y[IMAGE * CHANNELS + CHANNEL] = put<A>((float)(sum / PIXELS));
}
// dx = dy / PIXELS at every pixel.
KERNEL(spread)(const A* __restrict__ dy, A* __restrict__ dx, i64 n) {
  FOR_EACH(i, n) {
    const i64 image = i / (PIXELS * CHANNELS);
    const u32 place = (u32)(i - image * (PIXELS * CHANNELS));
    dx[i] = put<A>(get(dy[image * CHANNELS + place % CHANNELS]) / PIXELS);
  }
}

__device__ inline float larger(float a, float b) { return b > a || b != b ? b : a; }
// y = maximum over the pixels, or NaN.
KERNEL(largest)(const A* __restrict__ x, A* __restrict__ y) {
  float best = as_float(0xFF800000u);
  x += IMAGE * PIXELS * CHANNELS + CHANNEL;
  if (CHANNEL < CHANNELS)
    for (int i = ROW; i < PIXELS; i += ROWS) best = larger(best, get(x[(i64)i * CHANNELS]));
  best = column_of(best, larger);
  if (ROW == 0 && CHANNEL < CHANNELS) y[IMAGE * CHANNELS + CHANNEL] = put<A>(best);
}
// dx = dy / (number of maxima) at the maxima, else 0.
KERNEL(share)(const A* __restrict__ x, const A* __restrict__ y, const A* __restrict__ dy,
              A* __restrict__ dx) {
  const bool mine = CHANNEL < CHANNELS;
  const i64 first = IMAGE * PIXELS * CHANNELS + CHANNEL, out = IMAGE * CHANNELS + CHANNEL;
  const float best = mine ? get(y[out]) : 0.0f;
  int equal = 0;
  if (mine)
    for (int i = ROW; i < PIXELS; i += ROWS) equal += get(x[first + (i64)i * CHANNELS]) == best;
  equal = column_sum(equal);
  if (!mine) return;
  // With a NaN maximum nothing compares equal; then every pixel gets NaN.
  const A part = put<A>(equal > 0 ? get(dy[out]) / equal : best);
  const A other = put<A>(equal > 0 ? 0.0f : best);
  for (int i = ROW; i < PIXELS; i += ROWS) {
    const i64 at = first + (i64)i * CHANNELS;
    dx[at] = get(x[at]) == best ? part : other;
  }
}
)cuda";

/// One module for both ops.
inline constexpr Source global_pooling2d_source{"global_pooling2d", global_pooling2d_text,
                                                columns_functions};

template <class Precision, class Op>
std::array<Define, 4> global_pooling2d_defines(const Op& op) {
  return with_activation<Precision>(std::array{Define("LANES", Columns(op.out().size()).lanes),
                                               Define("CHANNELS", op.in[2]),
                                               Define("PIXELS", op.in[0] * op.in[1])});
}

/// The grid for a number of images.
inline Grid global_pooling2d_grid(std::size_t channels, std::size_t images) {
  return Columns(channels).grid(static_cast<int>(images));
}

}  // namespace detail::cuda

/// Backward needs neither x nor y.
template <class Precision>
struct Kernel<GlobalAveragePooling2DOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  using Op = GlobalAveragePooling2DOp;

  static void forward(const Op& op, const Io<D>& io) {
    if (io.step.count == 0) return;
    io.device.launch(kernel(op, io, "mean"),
                     detail::cuda::global_pooling2d_grid(op.out().size(), io.step.count), io.x[0],
                     io.y);
  }
  static void backward(const Op& op, const Io<D>& io) {
    if (io.step.count == 0 || io.dx[0] == nullptr) return;
    const std::size_t n = io.step.count * op.in.size();
    io.device.launch(kernel(op, io, "spread"), detail::cuda::Grid::over(n), io.dy, io.dx[0],
                     static_cast<std::int64_t>(n));
  }

 private:
  static CUfunction kernel(const Op& op, const Io<D>& io, const char* entry) {
    return io.device.kernel(detail::cuda::global_pooling2d_source, entry,
                            detail::cuda::global_pooling2d_defines<Precision>(op));
  }
};

/// Keeps x and y, to find the maxima again.
template <class Precision>
struct Kernel<GlobalMaxPooling2DOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  using Op = GlobalMaxPooling2DOp;
  static constexpr bool keeps_x = true, keeps_y = true;

  static void forward(const Op& op, const Io<D>& io) {
    if (io.step.count > 0) launch(op, io, "largest", io.x[0], io.y);
  }
  static void backward(const Op& op, const Io<D>& io) {
    if (io.step.count > 0 && io.dx[0] != nullptr)
      launch(op, io, "share", io.x[0], io.y, io.dy, io.dx[0]);
  }

 private:
  template <class... Ts>
  static void launch(const Op& op, const Io<D>& io, const char* entry, const Ts&... arguments) {
    io.device.launch(io.device.kernel(detail::cuda::global_pooling2d_source, entry,
                                      detail::cuda::global_pooling2d_defines<Precision>(op)),
                     detail::cuda::global_pooling2d_grid(op.out().size(), io.step.count),
                     arguments...);
  }
};

static_assert(HasKernel<GlobalAveragePooling2DOp, Cuda> && HasKernel<GlobalMaxPooling2DOp, Cuda>);

}  // namespace lockstep
