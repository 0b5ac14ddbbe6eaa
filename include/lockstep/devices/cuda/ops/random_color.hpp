/// \file
/// RandomContrast and RandomBrightness on a GPU: a block handles one image and up to 32 channels.
/// Invariants: an image's change is a function of the first uniform draw of its stream, as on the
/// host; means are summed in double.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/columns.hpp"
#include "lockstep/devices/cuda/support/philox.hpp"
#include "lockstep/layers/preprocessing/random_brightness.hpp"
#include "lockstep/layers/preprocessing/random_contrast.hpp"

namespace lockstep {
namespace detail::cuda {

/// CONTRAST: y = contrast (x - mean) + mean with a contrast from 1 - BELOW to 1 + ABOVE; otherwise
/// y = x + delta with a delta from BELOW to ABOVE times the length of the range.
inline constexpr char random_color_text[] = R"cuda(
#define IMAGE ((i64)PART)
#define FOR_PIXELS(i)        \
  if (CHANNEL < CHANNELS)    \
    for (i64 i = first_of() + (i64)ROW * CHANNELS; i < first_of() + (i64)PIXELS * CHANNELS; \
         i += (i64)ROWS * CHANNELS)
__device__ inline i64 first_of() { return IMAGE * PIXELS * CHANNELS + CHANNEL; }

struct Change {
  double drawn;
  float mean;
  __device__ float operator()(float x) const {
    return CONTRAST ? (float)drawn * (x - mean) + mean : x + (float)drawn;
  }
};
// All threads of the block call it.
__device__ inline Change change_of(const A* x, Stream stream) {
  const double draw = Draws(stream, IMAGE).uniform(), below = BELOW, above = ABOVE;
  Change change;
  change.mean = 0;
#if CONTRAST
  change.drawn = 1 - below + draw * (below + above);
  double sum = 0;
  FOR_PIXELS(i) sum += get(x[i]);
  change.mean = (float)(column_sum(sum) / PIXELS);
#else
  change.drawn = (below + draw * (above - below)) * ((double)HIGH - (double)LOW);
#endif
  return change;
}

KERNEL(forward)(const A* __restrict__ x, A* __restrict__ y, Stream stream) {
  const Change change = change_of(x, stream);
  FOR_PIXELS(i) {
    const float v = change(get(x[i]));
    y[i] = put<A>(v < LOW ? LOW : v > HIGH ? HIGH : v);
  }
}

// dx = contrast g + (1 - contrast) mean(g), where g is dy without the values that the range limits.
KERNEL(backward)(const A* __restrict__ x, const A* __restrict__ dy, A* __restrict__ dx,
                 Stream stream) {
  const Change change = change_of(x, stream);
  const auto gradient = [&](i64 i) {
    const float v = change(get(x[i]));
    return v < LOW || v > HIGH ? 0.0f : get(dy[i]);
  };
#if CONTRAST
  double sum = 0;
  FOR_PIXELS(i) sum += gradient(i);
  const float of_mean = (float)((1 - change.drawn) * column_sum(sum) / PIXELS);
  FOR_PIXELS(i) dx[i] = put<A>((float)change.drawn * gradient(i) + of_mean);
#else
  FOR_PIXELS(i) dx[i] = put<A>(gradient(i));
#endif
}
)cuda";

}  // namespace detail::cuda

/// Keeps x, which shows what the range limits. Inference copies.
template <RandomColorOp Op, class Precision>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool keeps_x = true;

  static void forward(const Op& op, const Io<D>& io) {
    if (io.step.count == 0) return;
    if (!io.step.training) return detail::cuda::copy_values(io, op.in.size(), io.x[0], io.y);
    io.device.launch(kernel(op, io, "forward"), grid(op, io), io.x[0], io.y,
                     detail::cuda::stream_of(io));
  }
  static void backward(const Op& op, const Io<D>& io) {
    if (io.step.count == 0 || io.dx[0] == nullptr) return;
    if (!io.step.training) return detail::cuda::copy_values(io, op.in.size(), io.dy, io.dx[0]);
    io.device.launch(kernel(op, io, "backward"), grid(op, io), io.x[0],
                     static_cast<const ActivationOf<D>*>(io.dy), io.dx[0],
                     detail::cuda::stream_of(io));
  }

 private:
  static detail::cuda::Columns columns(const Op& op) {
    return detail::cuda::Columns(static_cast<std::size_t>(op.in[2]));
  }
  static detail::cuda::Grid grid(const Op& op, const Io<D>& io) {
    return columns(op).grid(static_cast<int>(io.step.count));
  }
  static CUfunction kernel(const Op& op, const Io<D>& io, const char* entry) {
    using detail::cuda::Define;
    static constexpr detail::cuda::Source source{"random_color", detail::cuda::random_color_text,
                                                 detail::cuda::columns_functions};
    const auto defines = detail::cuda::with_activation<Precision>(std::array{
        Define("CHANNELS", op.in[2]), Define("LANES", columns(op).lanes),
        Define("PIXELS", op.in[0] * op.in[1]), Define("CONTRAST", Op::changes_contrast ? 1 : 0),
        Define("BELOW", op.factor.lower), Define("ABOVE", op.factor.upper),
        Define("LOW", op.range.lower), Define("HIGH", op.range.upper)});
    return io.device.kernel(source, entry, defines);
  }
};

static_assert(HasKernel<RandomContrastOp, Cuda> && HasKernel<RandomBrightnessOp, Cuda>);

}  // namespace lockstep
