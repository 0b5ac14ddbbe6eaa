/// \file
/// Dense on a GPU.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/kernels/dense_pass.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep {
namespace detail::cuda {

/// The passes of a dense layer at one batch size, perhaps with the ReLU behind it: backward then
/// begins with the gradient of what lies between, where that of y was.
template <class Precision, bool with_relu = false>
class DenseCalls {
 public:
  using D = BasicCuda<Precision>;

  DenseCalls() = default;
  [[gnu::cold]] DenseCalls(const DenseOp& op, CudaContext& context, std::size_t count)
      : y_(op, context, count, DensePass::forward, with_relu),
        dx_(op, context, count, DensePass::backward_data, false, y_.by_cublaslt()),
        dw_(op, context, count, DensePass::backward_weights) {}

  std::size_t scratch_bytes() const {
    return std::max({y_.scratch_bytes(), dx_.scratch_bytes(), dw_.scratch_bytes()});
  }

  void forward(const DenseOp&, const Io<D>& io) const {
    if (io.count > 0) y_.forward(io.device, io.x, io.w, io.y, io.scratch, {io.once});
  }
  void backward(const DenseOp& op, const Io<D>& io) const {
    if (io.count == 0) {
      const std::size_t n = op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.units) : 0);
      return io.device.clear(reinterpret_cast<std::byte*>(io.dw), n * sizeof(float));
    }
    if constexpr (with_relu)
      mask_elements(io.device, io.dy, static_cast<const A*>(io.y), io.count * op.out().size());
    dw_.backward_weights(io.device, io.x, io.dy, io.dw, io.scratch, io.centered);
    if (io.dx != nullptr)
      dx_.backward_data(io.device, io.dy, io.w, io.dx, io.scratch, {io.once, y_.by_cublaslt()});
  }

 private:
  using A = typename Precision::activation;

  DenseStep<Precision> y_, dx_, dw_;
};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<DenseOp, BasicCuda<Precision>>
    : PreparedKernel<DenseOp, BasicCuda<Precision>, detail::cuda::DenseCalls<Precision>> {
  static constexpr bool keeps_x = true;
  static constexpr bool knows_centered(const DenseOp& op) { return op.bias; }
  static constexpr std::size_t saved_once(const DenseOp& op) {
    return detail::cuda::DenseStep<Precision>::packed_bytes(op);
  }
};

static_assert(HasKernel<DenseOp, Cuda>);

}  // namespace lockstep
