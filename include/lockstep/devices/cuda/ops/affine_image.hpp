/// \file
/// RandomRotation, RandomTranslation and RandomZoom on a GPU: each result pixel is sampled at an
/// affine map of its coordinates. Invariant: the random numbers of an example are the first two
/// uniform draws of its stream.
///
///     x' = xx * column + xy * row + x0        y' = yx * column + yy * row + y0
///
/// CudaText<Op> of an AffineImageOp defines `void map(double first, double second, double* m)`,
/// which writes the AffineMap's xx, xy, x0, yx, yy, y0.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/image_sampling.hpp"
#include "lockstep/devices/cuda/support/scalar_text.hpp"
#include "lockstep/layers/preprocessing/affine_image.hpp"
#include "lockstep/layers/preprocessing/random_rotation.hpp"
#include "lockstep/layers/preprocessing/random_translation.hpp"
#include "lockstep/layers/preprocessing/random_zoom.hpp"

namespace lockstep {

/// Samples in training and copies in inference. There is no gradient.
template <AffineImageOp Op, class Precision>
  requires HasCudaText<Op>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool has_dx(const Op&) { return false; }

  static void forward(const Op& op, const Io<D>& io) {
    if (io.step.count == 0) return;
    if (io.step.training)
      detail::cuda::sample(sampling(op), io);
    else
      detail::cuda::copy_values(io, op.in.size(), io.x[0], io.y);
  }
  static void backward(const Op&, const Io<D>&) {}

 private:
  static auto sampling(const Op& op) {
    const auto defines =
        detail::cuda::with_define(CudaText<Op>::defines(op), CudaDefine("AFFINE", 1));
    return detail::cuda::Sampling<defines.size()>{
        {"affine", detail::cuda::sampling_text, CudaText<Op>::functions},
        op.in,
        op.in,
        {0, 0, op.in[0], op.in[1]},
        op.fill,
        op.interpolation,
        defines};
  }
};

/// A rotation by a fraction of a turn.
template <>
struct CudaText<RandomRotationOp> {
  static constexpr char functions[] = R"cuda(
// A rotation about the centre, by an angle in turns; __dmul_rn and __dadd_rn prevent contraction to
// fma, which the host does not do.
__device__ void map(double first, double, double* m) {
  const double lower = LOWER, upper = UPPER;
  const double angle =
      __dmul_rn(__dadd_rn(lower, __dmul_rn(first, upper - lower)), 6.283185307179586476925);
  const double c = cos(angle), s = sin(angle);
  const double x = (COLUMNS - 1) / 2.0, y = (ROWS - 1) / 2.0;  // the centre of the image
  m[0] = c;
  m[1] = -s;
  m[2] = __dadd_rn(__dadd_rn(x, -__dmul_rn(x, c)), __dmul_rn(y, s));
  m[3] = s;
  m[4] = c;
  m[5] = __dadd_rn(__dadd_rn(y, -__dmul_rn(x, s)), -__dmul_rn(y, c));
}
)cuda";
  static std::array<CudaDefine, 4> defines(const RandomRotationOp& op) {
    return {{{"LOWER", op.factor.lower},
             {"UPPER", op.factor.upper},
             {"ROWS", op.in[0]},
             {"COLUMNS", op.in[1]}}};
  }
};

/// A shift by a fraction of the extent along each axis; the first draw is the rows'.
template <>
struct CudaText<RandomTranslationOp> {
  static constexpr char functions[] = R"cuda(
__device__ double distance(double lower, double upper, double draw, int extent) {
  return __dmul_rn(__dadd_rn(lower, __dmul_rn(draw, upper - lower)), extent);
}
__device__ void map(double first, double second, double* m) {
  m[0] = m[4] = 1;
  m[1] = m[3] = 0;
  m[2] = -distance(LEFT, RIGHT, second, COLUMNS);
  m[5] = -distance(ABOVE, BELOW, first, ROWS);
}
)cuda";
  static std::array<CudaDefine, 6> defines(const RandomTranslationOp& op) {
    return {{{"ABOVE", op.rows.lower},
             {"BELOW", op.rows.upper},
             {"LEFT", op.columns.lower},
             {"RIGHT", op.columns.upper},
             {"ROWS", op.in[0]},
             {"COLUMNS", op.in[1]}}};
  }
};

/// A zoom about the centre by a factor along each axis; the first draw is the rows'.
template <>
struct CudaText<RandomZoomOp> {
  static constexpr char functions[] = R"cuda(
__device__ double zoom(double lower, double upper, double draw) {
  return __dadd_rn(1, __dadd_rn(lower, __dmul_rn(draw, upper - lower)));
}
__device__ void map(double first, double second, double* m) {
  const double down = zoom(ABOVE, BELOW, first);
  const double across = KEEPS_ASPECT ? down : zoom(LEFT, RIGHT, second);
  m[0] = across;
  m[1] = m[3] = 0;
  m[2] = __dmul_rn((COLUMNS - 1) / 2.0, 1 - across);
  m[4] = down;
  m[5] = __dmul_rn((ROWS - 1) / 2.0, 1 - down);
}
)cuda";
  static std::array<CudaDefine, 7> defines(const RandomZoomOp& op) {
    return {{{"ABOVE", op.rows.lower},
             {"BELOW", op.rows.upper},
             {"LEFT", op.columns.lower},
             {"RIGHT", op.columns.upper},
             {"ROWS", op.in[0]},
             {"COLUMNS", op.in[1]},
             {"KEEPS_ASPECT", op.keeps_aspect ? 1 : 0}}};
  }
};

static_assert(HasKernel<RandomRotationOp, Cuda> && HasKernel<RandomTranslationOp, Cuda> &&
              HasKernel<RandomZoomOp, Cuda>);

}  // namespace lockstep
