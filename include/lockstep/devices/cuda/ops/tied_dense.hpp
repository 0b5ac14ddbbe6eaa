/// \file
/// TiedDense on a GPU: the passes of a Dense layer with the same matrix, in the other direction.
///
///     TiedDense                  Dense of `rows` inputs and `columns` units
///     y = x m'                   gradient of the input
///     dx = dy m                  result
///     dm = dy' x                 gradient of the kernel
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/dense_pass.hpp"
#include "lockstep/layers/tied_dense.hpp"

namespace lockstep {

namespace detail::cuda {

/// The Dense layer whose kernel is the matrix.
constexpr DenseOp dense_of(const TiedDenseOp& op) {
  return {op.rows, op.columns, false, op.leading};
}

/// The passes of a TiedDense at one batch size.
template <class Precision>
class TiedDenseCalls {
 public:
  using D = BasicCuda<Precision>;

  /// With ForwardOnly, backward must not be called.
  template <std::same_as<ForwardOnly>... Only>
  TiedDenseCalls(const TiedDenseOp& op, CudaContext& context, std::size_t examples, Only...)
      : y_(dense_of(op), context, examples * op.vectors(), DensePass::backward_data) {
    if constexpr (sizeof...(Only) == 0) {
      const std::size_t count = examples * op.vectors();
      dx_ = {dense_of(op), context, count, DensePass::forward, false, y_.by_cublaslt()};
      dw_ = {dense_of(op), context, count, DensePass::backward_weights};
    }
  }

  std::size_t scratch_bytes() const {
    return std::max({y_.scratch_bytes(), dx_.scratch_bytes(), dw_.scratch_bytes()});
  }
  void forward(const TiedDenseOp&, const Io<D>& io) const {
    if (io.step.count > 0) y_.backward_data(io.device, io.x[0], io.w, io.y, io.scratch, {io.once});
  }
  void backward(const TiedDenseOp& op, const Io<D>& io) const {
    if (io.step.count == 0) {
      if (io.dw != nullptr)
        io.device.clear(reinterpret_cast<std::byte*>(io.dw), op.weights() * sizeof(float));
      return;
    }
    if (io.dw != nullptr) dw_.backward_weights(io.device, io.dy, io.x[0], io.dw, io.scratch);
    if (io.dx[0] != nullptr)
      dx_.forward(io.device, io.dy, io.w, io.dx[0], io.scratch, {io.once, y_.by_cublaslt()});
  }

 private:
  DenseStep<Precision> y_, dx_, dw_;
};

}  // namespace detail::cuda

/// Keeps x, and packed weights for the step.
template <class Precision>
struct Kernel<TiedDenseOp, BasicCuda<Precision>>
    : PreparedKernel<TiedDenseOp, BasicCuda<Precision>, detail::cuda::TiedDenseCalls<Precision>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t saved_once(const TiedDenseOp& op) {
    return detail::cuda::DenseStep<Precision>::packed_bytes(detail::cuda::dense_of(op));
  }
};

static_assert(HasKernel<TiedDenseOp, Cuda>);

}  // namespace lockstep
