/// \file
/// RandomFlip, RandomCutout and RandomCrop's windows on a GPU. Invariant: random numbers are those
/// of devices/host, and are drawn again in backward, so nothing is saved. blockIdx.y is the
/// example, and the threads of a row of blocks share its pixels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/image_sampling.hpp"
#include "lockstep/devices/cuda/support/philox.hpp"
#include "lockstep/layers/preprocessing/random_crop.hpp"
#include "lockstep/layers/preprocessing/random_cutout.hpp"
#include "lockstep/layers/preprocessing/random_flip.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source augmentation_source{"augmentation", R"cuda(
// from: (count, ROWS, COLUMNS, CHANNELS). A flip is its own inverse, so backward is the same
// kernel.
KERNEL(flip)(const A* from, A* to, Stream stream, i64 count) {
  const int size = ROWS * COLUMNS * CHANNELS;
  for (i64 n = blockIdx.y; n < count; n += gridDim.y) {
    const bool flips = block_of_words(stream, n, 0).word[0] < 0x80000000u;
    for (int i = INDEX; i < size; i += STRIDE) {
      int r = i / (COLUMNS * CHANNELS), c = i / CHANNELS % COLUMNS;
      if (flips && VERTICAL) r = ROWS - 1 - r;
      if (flips && HORIZONTAL) c = COLUMNS - 1 - c;
      to[n * size + i] = from[n * size + (r * COLUMNS + c) * CHANNELS + i % CHANNELS];
    }
  }
}

// A square of side SIDE around a random centre is set to `fill`. `from` may be `to`.
KERNEL(cutout)(const A* from, A* to, float fill, Stream stream, i64 count) {
  const int size = ROWS * COLUMNS * CHANNELS;
  for (i64 n = blockIdx.y; n < count; n += gridDim.y) {
    Draws draws(stream, n);
    const int top = (int)draws.below(ROWS) - SIDE / 2, left = (int)draws.below(COLUMNS) - SIDE / 2;
    for (int i = INDEX; i < size; i += STRIDE) {
      const int r = i / (COLUMNS * CHANNELS) - top, c = i / CHANNELS % COLUMNS - left;
      const bool inside = r >= 0 && r < SIDE && c >= 0 && c < SIDE;
      to[n * size + i] = inside ? put<A>(fill) : from[n * size + i];
    }
  }
}

// y: (count, HEIGHT, WIDTH, CHANNELS), random windows of x.
KERNEL(windows)(const A* x, A* y, Stream stream, i64 count) {
  const int large = ROWS * COLUMNS * CHANNELS, small = HEIGHT * WIDTH * CHANNELS;
  for (i64 n = blockIdx.y; n < count; n += gridDim.y) {
    Draws draws(stream, n);
    const int top = draws.below(ROWS - HEIGHT + 1), left = draws.below(COLUMNS - WIDTH + 1);
    for (int i = INDEX; i < small; i += STRIDE) {
      const int r = top + i / (WIDTH * CHANNELS), c = left + i / CHANNELS % WIDTH;
      y[n * small + i] = x[n * large + (r * COLUMNS + c) * CHANNELS + i % CHANNELS];
    }
  }
}

// The gradient of a window, surrounded by zeros.
KERNEL(around_windows)(const A* dy, A* dx, Stream stream, i64 count) {
  const int large = ROWS * COLUMNS * CHANNELS, small = HEIGHT * WIDTH * CHANNELS;
  for (i64 n = blockIdx.y; n < count; n += gridDim.y) {
    Draws draws(stream, n);
    const int top = draws.below(ROWS - HEIGHT + 1), left = draws.below(COLUMNS - WIDTH + 1);
    for (int i = INDEX; i < large; i += STRIDE) {
      const int r = i / (COLUMNS * CHANNELS) - top, c = i / CHANNELS % COLUMNS - left;
      const bool inside = r >= 0 && r < HEIGHT && c >= 0 && c < WIDTH;
      dx[n * large + i] =
          inside ? dy[n * small + (r * WIDTH + c) * CHANNELS + i % CHANNELS] : put<A>(0.0f);
    }
  }
}
)cuda"};

/// Defines shared by the kernels; arguments that a kernel does not use are 0.
template <class Precision>
auto augmentation_defines(const Shape& in, bool horizontal, bool vertical, int side, int height,
                          int width) {
  return with_activation<Precision>(std::array<Define, 8>{
      Define("ROWS", in[0]), Define("COLUMNS", in[1]), Define("CHANNELS", in[2]),
      Define("HORIZONTAL", horizontal ? 1 : 0), Define("VERTICAL", vertical ? 1 : 0),
      Define("SIDE", side), Define("HEIGHT", height), Define("WIDTH", width)});
}

}  // namespace detail::cuda

/// Flips each example with probability 1/2; inference copies.
template <class Precision>
struct Kernel<RandomFlipOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  using A = ActivationOf<D>;

  static void forward(const RandomFlipOp& op, const Io<D>& io) { apply(op, io, io.x[0], io.y); }
  static void backward(const RandomFlipOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) apply(op, io, io.dy, io.dx[0]);
  }

 private:
  static void apply(const RandomFlipOp& op, const Io<D>& io, const A* from, A* to) {
    if (io.step.count == 0) return;
    if (!io.step.training) return detail::cuda::copy_values(io, op.in.size(), from, to);
    const auto defines = detail::cuda::augmentation_defines<Precision>(
        op.in, op.mode != FlipMode::vertical, op.mode != FlipMode::horizontal, 0, 0, 0);
    io.device.launch(io.device.kernel(detail::cuda::augmentation_source, "flip", defines),
                     detail::cuda::example_grid(io.step.count, op.in.size()), from, to,
                     detail::cuda::stream_of(io), static_cast<std::int64_t>(io.step.count));
  }
};

/// Erases a random square in training; inference copies.
template <class Precision>
struct Kernel<RandomCutoutOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  using A = ActivationOf<D>;
  static constexpr bool in_place = true;

  static void forward(const RandomCutoutOp& op, const Io<D>& io) {
    apply(op, io, io.x[0], io.y, op.fill);
  }
  /// Draws the square again; pixels inside did not depend on x.
  static void backward(const RandomCutoutOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) apply(op, io, io.dy, io.dx[0], 0);
  }

 private:
  static void apply(const RandomCutoutOp& op, const Io<D>& io, const A* from, A* to, float fill) {
    if (io.step.count == 0) return;
    if (!io.step.training) return detail::cuda::copy_values(io, op.in.size(), from, to);
    const auto defines =
        detail::cuda::augmentation_defines<Precision>(op.in, false, false, op.size, 0, 0);
    io.device.launch(io.device.kernel(detail::cuda::augmentation_source, "cutout", defines),
                     detail::cuda::example_grid(io.step.count, op.in.size()), from, to, fill,
                     detail::cuda::stream_of(io), static_cast<std::int64_t>(io.step.count));
  }
};

/// A random window in training; inference, and images too small for a window, resize the middle.
template <class Precision>
struct Kernel<RandomCropOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  /// There is no gradient for images that are resized during training.
  static constexpr bool has_dx(const RandomCropOp& op) { return op.fits(); }

  static void forward(const RandomCropOp& op, const Io<D>& io) {
    if (io.step.count == 0) return;
    if (draws_windows(op, io))
      launch(op, io, "windows", op.out().size(), io.x[0], io.y);
    else
      detail::cuda::sample(sampling(op), io);
  }
  /// Draws the window again.
  static void backward(const RandomCropOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr && io.step.count > 0)
      launch(op, io, "around_windows", op.in.size(), io.dy, io.dx[0]);
  }

 private:
  using A = ActivationOf<D>;
  /// Whether the result is a window rather than a resized image.
  static bool draws_windows(const RandomCropOp& op, const Io<D>& io) {
    return io.step.training && op.fits();
  }
  static void launch(const RandomCropOp& op, const Io<D>& io, const char* entry, std::size_t units,
                     const A* from, A* to) {
    const auto defines =
        detail::cuda::augmentation_defines<Precision>(op.in, false, false, 0, op.height, op.width);
    io.device.launch(io.device.kernel(detail::cuda::augmentation_source, entry, defines),
                     detail::cuda::example_grid(io.step.count, units), from, to,
                     detail::cuda::stream_of(io), static_cast<std::int64_t>(io.step.count));
  }
  /// The central part, resized.
  static auto sampling(const RandomCropOp& op) {
    return detail::cuda::Sampling<0>{{"crop", detail::cuda::sampling_text},
                                     op.in,
                                     op.out(),
                                     op.middle(),
                                     fill_nearest,
                                     Interpolation::bilinear,
                                     {}};
  }
};

static_assert(HasKernel<RandomFlipOp, Cuda> && HasKernel<RandomCutoutOp, Cuda> &&
              HasKernel<RandomCropOp, Cuda>);

}  // namespace lockstep
