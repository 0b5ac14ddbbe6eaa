/// \file
/// Conv2D on a GPU: the three passes of support/convolution_pass.hpp, and the bias gradient.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/column_sums.hpp"
#include "lockstep/devices/cuda/support/convolution_pass.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"

namespace lockstep {
namespace detail::cuda {

/// The passes of Conv2D or Conv3D at one batch size, optionally with a ReLU. With one, backward first
/// replaces dy by the gradient before the ReLU, in the pass that also sums the bias gradient.
///
///     backward:  dy -> [mask by y > 0] -> db = column sums -> dw -> dx
template <class Precision, bool with_relu = false>
class ConvolutionCalls {
 public:
  using D = BasicCuda<Precision>;

  ConvolutionCalls() = default;
  ConvolutionCalls(const AnyConvolution& op, CudaContext& context, std::size_t count)
      : weights_(op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0)),
        steps_(op, context, count, op.bias, with_relu) {
    if (op.bias && count > 0)
      db_ = {context, static_cast<std::int64_t>(count * op.out().size()) / op.filters, op.filters,
             with_relu};
  }

  std::size_t scratch_bytes() const {
    return std::max(steps_.scratch_bytes(), db_.scratch_bytes());
  }

  /// y = x * w + b, through support/convolution_pass.hpp.
  void forward(const auto& op, const Io<D>& io) const {
    steps_.y.forward(io.device, io.x[0], io.w, op.bias ? io.w + op.kernel_size() : nullptr, io.y,
                     io.scratch, {io.once});
  }
  /// Without examples the gradients are cleared.
  void backward(const auto& op, const Io<D>& io) const {
    const bool wants_dw = io.dw != nullptr;
    if (io.step.count == 0) {
      if (wants_dw) io.device.clear(reinterpret_cast<std::byte*>(io.dw), weights_ * sizeof(float));
      return;
    }
    if constexpr (with_relu) {
      if (op.bias && wants_dw)
        db_.mask(io.device, io.dy, io.y, io.dw + op.kernel_size(), io.scratch);
      else
        mask_elements(io.device, io.dy, static_cast<const A*>(io.y),
                      io.step.count * op.out().size());
    } else if (op.bias && wants_dw) {
      db_(io.device, io.dy, io.dw + op.kernel_size(), io.scratch);
    }
    if (wants_dw) steps_.dw.backward_weights(io.device, io.x[0], io.dy, io.dw, io.scratch);
    if (io.dx[0] != nullptr)
      steps_.dx.backward_data(io.device, io.dy, io.w, nullptr, io.dx[0], io.scratch,
                              {io.once, steps_.y.by_cudnn()});
  }

 private:
  using A = typename Precision::activation;

  std::size_t weights_ = 0;
  ConvolutionSteps<Precision> steps_;
  ColumnSums<Precision> db_;
};

}  // namespace detail::cuda

/// Keeps x, and packed weights for the step.
template <class Precision>
struct Kernel<Conv2DOp, BasicCuda<Precision>>
    : PreparedKernel<Conv2DOp, BasicCuda<Precision>, detail::cuda::ConvolutionCalls<Precision>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t saved_once(const Conv2DOp& op) {
    return detail::cuda::packed_bytes<Precision>(op);
  }
};

static_assert(HasKernel<Conv2DOp, Cuda>);

}  // namespace lockstep
