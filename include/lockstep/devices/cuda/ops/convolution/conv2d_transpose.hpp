/// \file
/// Conv2DTranspose on a GPU. Invariant: forward is the backward-data pass of the convolution that
/// maps y to x, and its gradient with respect to x is that convolution's forward pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/devices/cuda/ops/convolution/conv2d.hpp"
#include "lockstep/layers/convolution/conv2d_transpose.hpp"

namespace lockstep {
namespace detail::cuda {

/// The passes of Conv2DTranspose at one batch size.
template <class Precision>
class TransposedCalls {
 public:
  using D = BasicCuda<Precision>;

  TransposedCalls() = default;
  TransposedCalls(const Conv2DTransposeOp& op, CudaContext& context, std::size_t count)
      : weights_(op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0)),
        back_(op.convolution(), context, count, false, false, /*dx_first=*/true) {
    if (op.bias && count > 0)
      db_ = {context, static_cast<std::int64_t>(count * op.out().size()) / op.filters, op.filters};
  }

  std::size_t scratch_bytes() const { return std::max(back_.scratch_bytes(), db_.scratch_bytes()); }

  void forward(const Conv2DTransposeOp& op, const Io<D>& io) const {
    back_.dx.backward_data(io.device, io.x[0], io.w, op.bias ? io.w + op.kernel_size() : nullptr,
                           io.y, io.scratch, {io.once});
  }
  void backward(const Conv2DTransposeOp& op, const Io<D>& io) const {
    const bool wants_dw = io.dw != nullptr;
    if (io.step.count == 0) {
      if (wants_dw) io.device.clear(reinterpret_cast<std::byte*>(io.dw), weights_ * sizeof(float));
      return;
    }
    if (wants_dw) back_.dw.backward_weights(io.device, io.dy, io.x[0], io.dw, io.scratch);
    if (op.bias && wants_dw) db_(io.device, io.dy, io.dw + op.kernel_size(), io.scratch);
    if (io.dx[0] != nullptr)
      back_.y.forward(io.device, io.dy, io.w, nullptr, io.dx[0], io.scratch,
                      {io.once, back_.dx.by_cudnn()});
  }

 private:
  std::size_t weights_ = 0;
  ConvolutionSteps<Precision> back_;
  ColumnSums<Precision> db_;
};

}  // namespace detail::cuda

/// Keeps x, and packed weights for the step.
template <class Precision>
struct Kernel<Conv2DTransposeOp, BasicCuda<Precision>>
    : PreparedKernel<Conv2DTransposeOp, BasicCuda<Precision>,
                     detail::cuda::TransposedCalls<Precision>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t saved_once(const Conv2DTransposeOp& op) {
    return detail::cuda::packed_bytes<Precision>(op);
  }
};

static_assert(HasKernel<Conv2DTransposeOp, Cuda>);

}  // namespace lockstep
