/// \file
/// Image operations of a data pipeline, for batches assembled on a GPU. Invariants: random numbers
/// are those of pipeline::example_draws; images are float (height, width, channels). blockIdx.y is
/// the example, except where a block handles a whole image.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/rows.hpp"
#include "lockstep/data/images/cutout.hpp"
#include "lockstep/data/images/per_image_standardization.hpp"
#include "lockstep/data/images/random_crop.hpp"
#include "lockstep/data/images/random_flip.hpp"
#include "lockstep/data/images/resize_with_crop_or_pad.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/ops/augmentation.hpp"
#include "lockstep/devices/cuda/support/philox.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source flip_images_source{"flip_images", R"cuda(
// Flips rows or columns with probability 1/2.
KERNEL(flip_images)(const float* __restrict__ x, float* __restrict__ y, Stream stream, i64 count) {
  const int size = ROWS * COLUMNS * CHANNELS;
  for (i64 n = blockIdx.y; n < count; n += gridDim.y) {
    const bool flips = Draws(stream, n).below(2) == 1;
    for (int i = INDEX; i < size; i += STRIDE) {
      int r = i / (COLUMNS * CHANNELS), c = i / CHANNELS % COLUMNS;
      if (flips && UP_DOWN) r = ROWS - 1 - r;
      if (flips && !UP_DOWN) c = COLUMNS - 1 - c;
      y[n * size + i] = x[n * size + (r * COLUMNS + c) * CHANNELS + i % CHANNELS];
    }
  }
}
)cuda"};

inline constexpr Source window_images_source{"window_images", R"cuda(
// y: (count, HEIGHT, WIDTH, CHANNELS), windows of x with `fill` outside of the image. The corner is
// drawn from DOWN x ACROSS places, starting at (TOP, LEFT), which may be negative.
KERNEL(window_images)(const float* __restrict__ x, float* __restrict__ y, float fill,
                      Stream stream, i64 count) {
  const int large = ROWS * COLUMNS * CHANNELS, small = HEIGHT * WIDTH * CHANNELS;
  for (i64 n = blockIdx.y; n < count; n += gridDim.y) {
    int top = TOP, left = LEFT;
    if (DOWN > 1 || ACROSS > 1) {
      Draws draws(stream, n);
      top += (int)draws.below(DOWN);
      left += (int)draws.below(ACROSS);
    }
    for (int i = INDEX; i < small; i += STRIDE) {
      const int r = top + i / (WIDTH * CHANNELS), c = left + i / CHANNELS % WIDTH;
      const bool inside = r >= 0 && r < ROWS && c >= 0 && c < COLUMNS;
      y[n * small + i] =
          inside ? x[n * large + (r * COLUMNS + c) * CHANNELS + i % CHANNELS] : fill;
    }
  }
}
)cuda"};

inline constexpr Source standardize_images_source{"standardize_images", R"cuda(
// One block per image: subtracts the mean and divides by max(deviation, 1 / sqrt(SIZE)).
KERNEL(standardize_images)(float* x, i64 count) {
  for (i64 n = blockIdx.x; n < count; n += gridDim.x) {
    float* const image = x + n * SIZE;
    double sum = 0;
    for (int i = threadIdx.x; i < SIZE; i += blockDim.x) sum += (double)image[i];
    const double mean = block_sum(sum) / SIZE;
    sum = 0;
    for (int i = threadIdx.x; i < SIZE; i += blockDim.x) {
      const double d = (double)image[i] - mean;
      sum += d * d;
    }
    const double deviation = sqrt(block_sum(sum) / SIZE), least = 1 / sqrt((double)SIZE);
    const float middle = (float)mean, scale = (float)(1 / (deviation > least ? deviation : least));
    for (int i = threadIdx.x; i < SIZE; i += blockDim.x) image[i] = (image[i] - middle) * scale;
  }
}
)cuda"};

/// The stream of a pipeline operation.
template <class D>
RandomStream stream_of(const ChangeRowsIo<D>& io) {
  return {io.key, io.first_ordinal};
}

/// Not in place: a flip reads the mirrored pixel.
template <class D>
void flip_images(const ChangeRowsIo<D>& io, bool up_down) {
  if (io.count == 0) return;
  io.device.launch(io.device.kernel(flip_images_source, "flip_images",
                                    {{"ROWS", io.in[0]},
                                     {"COLUMNS", io.in[1]},
                                     {"CHANNELS", io.in[2]},
                                     {"UP_DOWN", up_down}}),
                   example_grid(io.count, io.in.size()), io.x, io.y, stream_of(io),
                   static_cast<std::int64_t>(io.count));
}

/// Launches with one of `down` x `across` corners, starting at `first`.
template <class D>
void window_images(const ChangeRowsIo<D>& io, pipeline::Corner first, std::int64_t down,
                   std::int64_t across, double fill) {
  if (io.count == 0) return;
  io.device.launch(io.device.kernel(window_images_source, "window_images",
                                    {{"ROWS", io.in[0]},
                                     {"COLUMNS", io.in[1]},
                                     {"CHANNELS", io.in[2]},
                                     {"HEIGHT", io.out[0]},
                                     {"WIDTH", io.out[1]},
                                     {"TOP", first.row},
                                     {"LEFT", first.column},
                                     {"DOWN", down},
                                     {"ACROSS", across}}),
                   example_grid(io.count, io.out.size()), io.x, io.y, static_cast<float>(fill),
                   stream_of(io), static_cast<std::int64_t>(io.count));
}

}  // namespace detail::cuda

/// Mirrors images with probability 1/2 (`random_flip_left_right`).
template <class Precision>
struct Kernel<pipeline::FlipLeftRight, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static void run(const pipeline::FlipLeftRight&, const ChangeRowsIo<BasicCuda<Precision>>& io) {
    detail::cuda::flip_images(io, false);
  }
};

/// Turns images upside down with probability 1/2 (`random_flip_up_down`).
template <class Precision>
struct Kernel<pipeline::FlipUpDown, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static void run(const pipeline::FlipUpDown&, const ChangeRowsIo<BasicCuda<Precision>>& io) {
    detail::cuda::flip_images(io, true);
  }
};

/// Pads by `padding` and draws a window.
template <class Precision>
struct Kernel<pipeline::RandomWindow, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static void run(const pipeline::RandomWindow& op, const ChangeRowsIo<BasicCuda<Precision>>& io) {
    detail::cuda::window_images(io, {-op.padding, -op.padding}, op.places(io.in[0], op.height),
                                op.places(io.in[1], op.width), op.fill);
  }
};

/// Crops or pads around the centre.
template <class Precision>
struct Kernel<pipeline::CentralWindow, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static void run(const pipeline::CentralWindow& op, const ChangeRowsIo<BasicCuda<Precision>>& io) {
    detail::cuda::window_images(io, op.corner(io.in), 1, 1, op.fill);
  }
};

/// Erases a random square; the kernel of RandomCutout.
template <class Precision>
struct Kernel<pipeline::Cutout, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool in_place = true;
  static void run(const pipeline::Cutout& op, const ChangeRowsIo<BasicCuda<Precision>>& io) {
    if (io.count == 0) return;
    const auto defines =
        detail::cuda::augmentation_defines<Float32>(io.in, false, false, op.size, 0, 0);
    io.device.launch(io.device.kernel(detail::cuda::augmentation_source, "cutout", defines),
                     detail::cuda::example_grid(io.count, io.in.size()),
                     static_cast<const float*>(io.y), io.y, static_cast<float>(op.fill),
                     detail::cuda::stream_of(io), static_cast<std::int64_t>(io.count));
  }
};

/// Zero mean and unit variance per image.
template <class Precision>
struct Kernel<pipeline::Standardize, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool in_place = true;
  static void run(const pipeline::Standardize&, const ChangeRowsIo<BasicCuda<Precision>>& io) {
    if (io.count == 0) return;
    const auto blocks = static_cast<unsigned>(std::min<std::size_t>(io.count, 1 << 16));
    io.device.launch(io.device.kernel(detail::cuda::standardize_images_source, "standardize_images",
                                      {{"SIZE", io.in.size()}}),
                     detail::cuda::Grid{{blocks, 1, 1}, {256, 1, 1}}, io.y,
                     static_cast<std::int64_t>(io.count));
  }
};

static_assert(HasKernel<pipeline::FlipLeftRight, Cuda> && HasKernel<pipeline::FlipUpDown, Cuda> &&
              HasKernel<pipeline::RandomWindow, Cuda> && HasKernel<pipeline::CentralWindow, Cuda> &&
              HasKernel<pipeline::Cutout, Cuda> && HasKernel<pipeline::Standardize, Cuda>);

}  // namespace lockstep
