/// \file
/// Dense on a GPU: y = x * w + b, dw = x^T * dy, db = column sums of dy, dx = dy * w^T.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/dense_backward.hpp"
#include "lockstep/devices/cuda/support/dense_pass.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep {
namespace detail::cuda {

/// The passes of a dense layer at one batch size, optionally with a ReLU. Backward is a single
/// launch if that is faster than one product per gradient. With separate products dy is first
/// replaced by the gradient before the ReLU.
template <class Precision, bool with_relu = false>
class DenseCalls {
 public:
  using D = BasicCuda<Precision>;

  DenseCalls() = default;
  DenseCalls(const DenseOp& op, CudaContext& context, std::size_t examples)
      : weights_(op.weights()),
        y_(op, context, examples * op.rows(), DensePass::forward, with_relu) {
    const std::size_t count = examples * op.rows();
    const bool fits = DenseBackward<Precision>::fits(op, count);
    if (fits) all_ = {op, context, count, with_relu};
    // Without cuBLASLt the products would run the same code in more launches.
    is_one_launch_ = fits && context.handle<CublasLtAccess>().handle() == nullptr;
    if (is_one_launch_) return;
    const std::string work = describe(op, context, count);
    const auto known = context.handle<TuningCache>().find(context, work);
    is_one_launch_ = fits && known == one_launch;
    if (is_one_launch_) return;
    dx_ = {op, context, count, DensePass::backward_data, false, y_.by_cublaslt()};
    dw_ = {op, context, count, DensePass::backward_weights};
    if (fits && known != products) choose(op, context, count, work);
  }

  std::size_t scratch_bytes() const {
    const std::size_t backward = is_one_launch_
                                     ? weights_ * sizeof(float)
                                     : std::max(dx_.scratch_bytes(), dw_.scratch_bytes());
    return std::max(y_.scratch_bytes(), backward);
  }
  /// Whether backward is a single launch.
  bool is_one_launch() const { return is_one_launch_; }

  void forward(const DenseOp&, const Io<D>& io) const {
    if (io.step.count > 0) y_.forward(io.device, io.x[0], io.w, io.y, io.scratch, {io.once});
  }
  void backward(const DenseOp& op, const Io<D>& io) const {
    if (io.step.count == 0) {
      if (io.dw != nullptr)
        io.device.clear(reinterpret_cast<std::byte*>(io.dw), weights_ * sizeof(float));
      return;
    }
    gradients(op, io.device, io.step.count * op.rows(),
              {io.x[0], io.y, io.dy, io.w, io.dw, io.dx[0], io.scratch, io.once});
  }

 private:
  using A = typename Precision::activation;

  /// Operands of backward.
  struct Places {
    const A *x, *y;
    A* dy;
    const float* w;
    float* dw;
    A* dx;
    std::byte *scratch, *packed;
  };
  /// Backward as chosen: one launch, or mask, dw and db, dx. Without dw the launch writes it to
  /// scratch.
  void gradients(const DenseOp& op, CudaContext& context, std::size_t count,
                 const Places& p) const {
    if (is_one_launch_) {
      float* const dw = p.dw != nullptr ? p.dw : reinterpret_cast<float*>(p.scratch);
      return all_(context, p.x, p.dy, p.y, p.w, dw, dw + op.kernel_size(), p.dx);
    }
    if constexpr (with_relu)
      mask_elements(context, p.dy, p.y, count * static_cast<std::size_t>(op.units));
    if (p.dw != nullptr) dw_.backward_weights(context, p.x, p.dy, p.dw, p.scratch);
    if (p.dx != nullptr)
      dx_.backward_data(context, p.dy, p.w, p.dx, p.scratch, {p.packed, y_.by_cublaslt()});
  }

  /// The names of the two candidates in the TuningCache.
  static constexpr const char *products = "products", *one_launch = "one launch";

  /// The key of the autotuning result.
  static std::string describe(const DenseOp& op, CudaContext& context, std::size_t count) {
    return format_text("the gradients of a dense layer ({} x {} -> {}{}{}{}), cuBLASLt {}", count,
                       op.inputs, op.units, op.bias ? ", bias, " : ", ", with_relu ? "ReLU, " : "",
                       Precision::name, context.handle<CublasLtAccess>().version());
  }
  /// Measures both and sets is_one_launch_.
  void choose(const DenseOp& op, CudaContext& context, std::size_t count, const std::string& work) {
    const TuningSizes bytes{count * static_cast<std::size_t>(op.inputs) * sizeof(A),
                            op.weights() * sizeof(float),
                            count * static_cast<std::size_t>(op.units) * sizeof(A), scratch_bytes(),
                            DenseStep<Precision>::packed_bytes(op)};
    std::optional<TuningBuffers<A>> values, slopes;
    const auto run = [&](std::size_t way) {
      if (!values) values.emplace(context, bytes);
      if (!slopes) slopes.emplace(context, TuningSizes{bytes.x, bytes.w, bytes.y, 0, 0});
      is_one_launch_ = way == 1;
      gradients(op, context, count,
                {values->x.template as<A>(), values->y.template as<A>(), slopes->y.template as<A>(),
                 values->w.template as<float>(), slopes->w.template as<float>(),
                 slopes->x.template as<A>(), values->scratch.template as<std::byte>(),
                 values->packed.template as<std::byte>()});
    };
    const auto name = [](std::size_t way) { return way == 1 ? one_launch : products; };
    is_one_launch_ = context.handle<TuningCache>().measure(context, work, 2, run, name) == 1;
  }

  std::size_t weights_ = 0;
  DenseStep<Precision> y_, dx_, dw_;
  DenseBackward<Precision> all_;
  bool is_one_launch_ = false;
};

}  // namespace detail::cuda

/// Keeps x, and packed weights for the step.
template <class Precision>
struct Kernel<DenseOp, BasicCuda<Precision>>
    : PreparedKernel<DenseOp, BasicCuda<Precision>, detail::cuda::DenseCalls<Precision>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
  static constexpr std::size_t saved_once(const DenseOp& op) {
    return detail::cuda::DenseStep<Precision>::packed_bytes(op);
  }
};

static_assert(HasKernel<DenseOp, Cuda>);

}  // namespace lockstep
