/// \file
/// Conv2D on a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/column_sums.hpp"
#include "lockstep/devices/cuda/support/convolution_pass.hpp"
#include "lockstep/devices/cuda/support/convolution_sums.hpp"
#include "lockstep/layers/conv2d.hpp"

namespace lockstep {
namespace detail::cuda {

/// The passes of Conv2D at one batch size, perhaps with the ReLU behind it: backward then begins
/// with the gradient of what lies between, where that of y was, by one pass that also sums it up.
/// Forward of a step that trains may leave the sums of y, and a bias out of it.
template <class Precision, bool with_relu = false>
class ConvolutionCalls {
 public:
  using D = BasicCuda<Precision>;

  ConvolutionCalls() = default;
  [[gnu::cold]] ConvolutionCalls(const Conv2DOp& op, CudaContext& context, std::size_t count)
      : weights_(op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0)),
        steps_(op, context, count, op.bias, with_relu) {
    if (op.bias && count > 0)
      db_ = {context, static_cast<std::int64_t>(count * op.out().size()) / op.filters, op.filters,
             with_relu};
  }

  /// Whether forward will.
  [[gnu::cold]] bool prepare_sums(const Conv2DOp& op, CudaContext& context, std::size_t count) {
    sums_ = {op, context, count, steps_.y};
    if (sums_ && !steps_.y.by_cudnn())
      steps_.dx = {op,    context, count,          ConvolutionPass::backward_data,
                   false, false,   /*packed=*/true};
    return static_cast<bool>(sums_);
  }

  std::size_t scratch_bytes() const {
    return std::max({steps_.scratch_bytes(), db_.scratch_bytes(), sums_.scratch_bytes()});
  }

  void forward(const Conv2DOp& op, const Io<D>& io) const {
    const float* const bias = op.bias ? io.w + op.kernel_size() : nullptr;
    if (io.y_sums != nullptr)
      return sums_.forward(io.device, io.x, io.w, bias, io.y, io.y_sums, io.scratch, io.once);
    steps_.y.forward(io.device, io.x, io.w, bias, io.y, io.scratch, {io.once});
  }
  void backward(const Conv2DOp& op, const Io<D>& io) const {
    if (io.count == 0)
      return io.device.clear(reinterpret_cast<std::byte*>(io.dw), weights_ * sizeof(float));
    if constexpr (with_relu) {
      if (op.bias)
        db_.mask(io.device, io.dy, io.y, io.dw + op.kernel_size(), io.scratch);
      else
        mask_elements(io.device, io.dy, static_cast<const A*>(io.y), io.count * op.out().size());
    } else if (op.bias && !io.centered) {
      db_(io.device, io.dy, io.dw + op.kernel_size(), io.scratch);
    }
    steps_.dw.backward_weights(io.device, io.x, io.dy, io.dw, io.scratch);
    if (io.dx != nullptr)
      steps_.dx.backward_data(io.device, io.dy, io.w, nullptr, io.dx, io.scratch,
                              {io.once, io.y_sums != nullptr || steps_.y.by_cudnn()});
  }

 private:
  using A = typename Precision::activation;

  std::size_t weights_ = 0;
  ConvolutionSteps<Precision> steps_;
  ConvolutionSums<Precision> sums_;
  ColumnSums<Precision> db_;
};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<Conv2DOp, BasicCuda<Precision>>
    : PreparedKernel<Conv2DOp, BasicCuda<Precision>, detail::cuda::ConvolutionCalls<Precision>> {
  static constexpr bool keeps_x = true;
  static constexpr bool knows_centered(const Conv2DOp& op) { return op.bias; }
  static constexpr bool sums_y(const Conv2DOp&) {
    return detail::cuda::may_sum_in_float<Precision>;
  }
  static bool prepare_sums(const Conv2DOp& op, CudaContext& context, std::size_t count,
                           detail::cuda::ConvolutionCalls<Precision>& calls) {
    return calls.prepare_sums(op, context, count);
  }
  static constexpr std::size_t saved_once(const Conv2DOp& op) {
    return detail::cuda::packed_bytes<Precision>(op);
  }
};

static_assert(HasKernel<Conv2DOp, Cuda>);

}  // namespace lockstep
