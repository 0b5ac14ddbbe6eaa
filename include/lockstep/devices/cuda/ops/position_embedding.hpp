/// \file
/// PositionEmbedding on a GPU. Invariant: a thread adds the gradients of one element of the table in
/// the order of the examples, in double.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/philox.hpp"
#include "lockstep/layers/position_embedding.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source position_embedding_source{"position_embedding", R"cuda(
KERNEL(forward)(const A* x, A* y, const float* __restrict__ w, i64 n) {
  FOR_EACH(i, n) y[i] = put<A>(get(x[i]) + w[i % SIZE]);
}
KERNEL(sums)(const A* __restrict__ dy, float* dw, i64 count) {
  FOR_EACH(i, TABLE) {
    double sum = 0;
    if (i < SIZE)
      for (i64 n = 0; n < count; ++n) sum += get(dy[n * SIZE + i]);
    dw[i] = (float)sum;
  }
}
)cuda"};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<PositionEmbeddingOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool in_place = true, skips_dw = true;

  static void forward(const PositionEmbeddingOp& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.in.size();
    if (n > 0)
      io.device.launch(kernel(op, io, "forward"), detail::cuda::Grid::over(n), io.x[0], io.y, io.w,
                       static_cast<std::int64_t>(n));
  }
  static void backward(const PositionEmbeddingOp& op, const Io<D>& io) {
    if (io.dw != nullptr)
      io.device.launch(kernel(op, io, "sums"), detail::cuda::Grid::over(op.weights()), io.dy, io.dw,
                       static_cast<std::int64_t>(io.step.count));
    if (io.dx[0] != nullptr && io.step.count > 0)
      detail::cuda::copy_values(io, op.in.size(), io.dy, io.dx[0]);
  }

 private:
  static CUfunction kernel(const PositionEmbeddingOp& op, const Io<D>& io, const char* entry) {
    const auto defines = detail::cuda::with_activation<Precision>(std::array{
        detail::cuda::Define("SIZE", op.in.size()), detail::cuda::Define("TABLE", op.weights())});
    return io.device.kernel(detail::cuda::position_embedding_source, entry, defines);
  }
};

static_assert(HasKernel<PositionEmbeddingOp, Cuda>);

}  // namespace lockstep
