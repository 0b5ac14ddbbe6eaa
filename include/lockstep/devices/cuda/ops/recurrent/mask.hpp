/// \file
/// Masks of padded steps, the layer Masking and the mean of unpadded steps on a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/layers/pooling/pooling1d.hpp"
#include "lockstep/layers/recurrent/masking.hpp"

namespace lockstep {

namespace detail::cuda {

/// WIDTH: elements of a step. Steps whose elements are all VALUE are padded.
inline constexpr Source mask_source{"mask", R"cuda(
__device__ inline bool is_valid(const A* step) {
  const float padding = get(put<A>(VALUE));
  for (int k = 0; k < WIDTH; ++k)
    if (get(step[k]) != padding) return true;
  return false;
}
// `other`: a second mask, or null.
KERNEL(mask)(const A* x, const A* other, A* y, i64 n) {
  FOR_EACH(i, n) {
    bool counts = is_valid(x + i * WIDTH);
    if (other && counts == BOTH) counts = is_valid(other + i * WIDTH);
    y[i] = put<A>(counts ? 1.0f : 0.0f);
  }
}
KERNEL(masking)(const A* x, const A* from, A* to, i64 n) {
  FOR_EACH(i, n) to[i] = is_valid(x + i / WIDTH * WIDTH) ? from[i] : put<A>(0.0f);
}
)cuda"};

/// A thread has one of the WIDTH elements of a step, in all STEPS of an example.
inline constexpr Source masked_average_source{"masked_average", R"cuda(
// 1 / the number of steps in the mean.
__device__ inline float share_of(const A* mask) {
  int valid = 0;
  for (int s = 0; s < STEPS; ++s) valid += get(mask[s]) != 0;
  return valid == 0 ? 0.0f : 1.0f / valid;
}
KERNEL(forward)(const A* x, const A* mask, A* y, i64 n) {
  FOR_EACH(i, n) {
    const i64 example = i / WIDTH;
    const A *const own = mask + example * STEPS, *const from = x + example * STEPS * WIDTH + i % WIDTH;
    float sum = 0;
    for (int s = 0; s < STEPS; ++s)
      if (get(own[s]) != 0) sum += get(from[(i64)s * WIDTH]);
    y[i] = put<A>(sum * share_of(own));
  }
}
KERNEL(backward)(const A* dy, const A* mask, A* dx, i64 n) {
  FOR_EACH(i, n) {
    const i64 example = i / WIDTH;
    const A* const own = mask + example * STEPS;
    A* const to = dx + example * STEPS * WIDTH + i % WIDTH;
    const float g = get(dy[i]) * share_of(own);
    for (int s = 0; s < STEPS; ++s) to[(i64)s * WIDTH] = put<A>(get(own[s]) != 0 ? g : 0.0f);
  }
}
)cuda"};

/// A kernel of `mask_source`.
template <class Precision>
CUfunction mask_kernel(CudaContext& context, const char* entry, const MaskOp& op) {
  return context.kernel(
      mask_source, entry,
      with_activation<Precision>(std::array{Define("WIDTH", op.width()), Define("VALUE", op.value),
                                            Define("BOTH", op.both)}));
}

}  // namespace detail::cuda

template <class Precision>
struct Kernel<MaskOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static void forward(const MaskOp& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    io.device.launch(detail::cuda::mask_kernel<Precision>(io.device, "mask", op),
                     detail::cuda::Grid::over(n), io.x[0], op.merges ? io.x[1] : nullptr, io.y,
                     static_cast<std::int64_t>(n));
  }
  static void backward(const MaskOp&, const Io<D>&) {}
};

template <class Precision>
struct Kernel<MaskingOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool keeps_x = true;
  static void forward(const MaskingOp& op, const Io<D>& io) { apply(op, io, io.x[0], io.y); }
  static void backward(const MaskingOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) apply(op, io, io.dy, io.dx[0]);
  }

 private:
  using A = ActivationOf<D>;
  static void apply(const MaskingOp& op, const Io<D>& io, const A* from, A* to) {
    const std::size_t n = io.step.count * op.in.size();
    if (n == 0) return;
    io.device.launch(detail::cuda::mask_kernel<Precision>(io.device, "masking", op.mask()),
                     detail::cuda::Grid::over(n), io.x[0], from, to, static_cast<std::int64_t>(n));
  }
};

template <class Precision>
struct Kernel<MaskedAverageOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x(const MaskedAverageOp&, std::size_t operand) {
    return operand == 1;
  }
  static void forward(const MaskedAverageOp& op, const Io<D>& io) {
    launch(op, io, "forward", io.x[0], io.y);
  }
  static void backward(const MaskedAverageOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) launch(op, io, "backward", io.dy, io.dx[0]);
  }

 private:
  static void launch(const MaskedAverageOp& op, const Io<D>& io, const char* entry, const A* from,
                     A* to) {
    using detail::cuda::Define;
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    const auto defines = detail::cuda::with_activation<Precision>(
        std::array{Define("STEPS", op.in[0]), Define("WIDTH", op.out().size())});
    io.device.launch(io.device.kernel(detail::cuda::masked_average_source, entry, defines),
                     detail::cuda::Grid::over(n), from, io.x[1], to, static_cast<std::int64_t>(n));
  }
};

static_assert(HasKernel<MaskOp, Cuda> && HasKernel<MaskingOp, Cuda> &&
              HasKernel<MaskedAverageOp, Cuda>);

}  // namespace lockstep
