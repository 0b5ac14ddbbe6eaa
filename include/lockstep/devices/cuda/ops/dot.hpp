/// \file
/// Dot on a GPU: one thread per dot product, and per element of a gradient.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/layers/merging/dot.hpp"

namespace lockstep {

namespace detail::cuda {

/// ROWS, OTHERS: vectors of the value `of` and of the value `other`; LENGTH: their elements. STEP
/// and OTHER_STEP: distance of the elements. IN_Y and OTHER_IN_Y: distance of the vectors' products
/// in y. SAVED: numbers in `saved` per example, with the scales of `of` from SCALES on, those of
/// `other` from OTHER_SCALES on, and y from PRODUCTS on.
inline constexpr Source dot_source{"dot", R"cuda(
#define LARGEST_SCALE 1e7f  // Keras' epsilon is 1e-7

__device__ inline i64 begin_of(i64 example, int row, int rows, int step) {
  return (example * rows + row / step * step) * LENGTH + row % step;
}
// 1 / length of each vector of `of`.
KERNEL(scales)(const A* __restrict__ of, float* __restrict__ saved, i64 n) {
  FOR_EACH(i, n) {
    const i64 example = i / ROWS;
    const int row = (int)(i - example * ROWS);
    const A* const x = of + begin_of(example, row, ROWS, STEP);
    float sum = 0;
    for (int k = 0; k < LENGTH; ++k) sum += get(x[k * STEP]) * get(x[k * STEP]);
    const float scale = 1 / sqrtf(sum);
    saved[example * SAVED + SCALES + row] = scale > LARGEST_SCALE ? LARGEST_SCALE : scale;
  }
}
// `saved` is null unless SAVED.
KERNEL(forward)(const A* __restrict__ of, const A* __restrict__ other, A* __restrict__ y,
                float* saved, i64 n) {
  FOR_EACH(i, n) {
    const i64 example = i / (ROWS * OTHERS);
    const int place = (int)(i - example * (ROWS * OTHERS));
    const int row = place / OTHERS, column = place % OTHERS;
    const A* const a = of + begin_of(example, row, ROWS, STEP);
    const A* const b = other + begin_of(example, column, OTHERS, OTHER_STEP);
    float sum = 0;
    for (int k = 0; k < LENGTH; ++k) sum += get(a[k * STEP]) * get(b[k * OTHER_STEP]);
#if SAVED
    float* const s = saved + example * SAVED;
    sum *= s[SCALES + row] * s[OTHER_SCALES + column];
    s[PRODUCTS + place] = sum;
#endif
    y[i] = put<A>(sum);
  }
}
KERNEL(backward)(const A* __restrict__ of, const A* __restrict__ other,
                 const A* __restrict__ dy, A* __restrict__ dx, const float* __restrict__ saved,
                 i64 n) {
  FOR_EACH(i, n) {
    const i64 example = i / (ROWS * LENGTH);
    const int place = (int)(i - example * (ROWS * LENGTH));
    const int row = place / (LENGTH * STEP) * STEP + place % STEP, k = place / STEP % LENGTH;
    const A* const slope = dy + example * (ROWS * OTHERS) + row * IN_Y;
#if SAVED
    const float* const s = saved + example * SAVED;
    const float* const products = s + PRODUCTS + row * IN_Y;
#endif
    float sum = 0, along = 0;
    for (int m = 0; m < OTHERS; ++m) {
      float g = get(slope[m * OTHER_IN_Y]);
#if SAVED
      along += g * products[m * OTHER_IN_Y];
      g *= s[OTHER_SCALES + m];
#endif
      sum += g * get(other[begin_of(example, m, OTHERS, OTHER_STEP) + k * OTHER_STEP]);
    }
#if SAVED
    const float scale = s[SCALES + row];
    if (scale == LARGEST_SCALE) along = 0;
    sum = scale * (sum - get(of[i]) * scale * along);
#endif
    dx[i] = put<A>(sum);
  }
}
)cuda"};

}  // namespace detail::cuda

/// Saves 1 / length of each vector and y in float if the vectors are normalized.
template <class Precision>
struct Kernel<DotOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool keeps_x = true;
  static constexpr std::size_t saved(const DotOp& op) { return values(op) * sizeof(float); }

  static void forward(const DotOp& op, const Io<D>& io) {
    const std::size_t count = io.step.count;
    float* const saved = saved_of(op, io);
    if (op.normalize) {
      launch(op, io, "scales", count * op.rows().count, false, io.x[0], saved);
      launch(op, io, "scales", count * op.other_rows().count, true, io.x[1], saved);
    }
    launch(op, io, "forward", count * op.out().size(), false, io.x[0], io.x[1], io.y, saved);
  }
  static void backward(const DotOp& op, const Io<D>& io) {
    const std::size_t count = io.step.count;
    const float* const saved = saved_of(op, io);
    const auto* const dy = io.dy;
    if (io.dx[0] != nullptr)
      launch(op, io, "backward", count * op.in.size(), false, io.x[0], io.x[1], dy, io.dx[0],
             saved);
    if (io.dx[1] != nullptr)
      launch(op, io, "backward", count * op.other.size(), true, io.x[1], io.x[0], dy, io.dx[1],
             saved);
  }

 private:
  static constexpr std::size_t values(const DotOp& op) {
    return op.normalize ? op.rows().count + op.other_rows().count + op.out().size() : 0;
  }
  static float* saved_of(const DotOp& op, const Io<D>& io) {
    return op.normalize ? reinterpret_cast<float*>(io.saved) : nullptr;
  }
  /// `of_other`: the value of the text is x2, and the other one x.
  template <class... Pointers>
  static void launch(const DotOp& op, const Io<D>& io, const char* entry, std::size_t n,
                     bool of_other, const Pointers&... pointers) {
    using detail::cuda::Define;
    if (n == 0) return;
    const detail::DotRows x = op.rows(), x2 = op.other_rows();
    const auto [rows, others] = of_other ? std::pair(x2, x) : std::pair(x, x2);
    const std::size_t zero = 0, one = 1;
    const auto defines = detail::cuda::with_activation<Precision>(std::array{
        Define("ROWS", rows.count), Define("OTHERS", others.count), Define("LENGTH", rows.length),
        Define("STEP", rows.step), Define("OTHER_STEP", others.step),
        Define("IN_Y", of_other ? one : x2.count), Define("OTHER_IN_Y", of_other ? x2.count : one),
        Define("SAVED", values(op)), Define("SCALES", of_other ? x.count : zero),
        Define("OTHER_SCALES", of_other ? zero : x.count), Define("PRODUCTS", x.count + x2.count)});
    io.device.launch(io.device.kernel(detail::cuda::dot_source, entry, defines),
                     detail::cuda::Grid::over(n), pointers..., static_cast<std::int64_t>(n));
  }
};

static_assert(HasKernel<DotOp, Cuda>);

}  // namespace lockstep
