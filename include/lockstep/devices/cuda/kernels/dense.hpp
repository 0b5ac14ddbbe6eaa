/// \file
/// Dense on a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/kernels/column_sums.hpp"
#include "lockstep/devices/cuda/kernels/matrix_product.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep {
namespace detail::cuda {

/// The passes of a dense layer at one batch size.
template <class Precision>
class DenseCalls {
 public:
  using D = BasicCuda<Precision>;

  DenseCalls() = default;
  [[gnu::cold]] DenseCalls(const DenseOp& op, CudaContext& context, std::size_t count)
      : weights_(op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.units) : 0)) {
    const std::int64_t n = static_cast<std::int64_t>(count), inputs = op.inputs, units = op.units;
    if (n == 0) return;
    y_ = product(context, {n, units, inputs}, {inputs, 1}, {units, 1}, false);
    dx_ = product(context, {n, inputs, units}, {units, 1}, {1, units}, false);
    dw_ = product(context, {inputs, units, n}, {1, inputs}, {units, 1}, true);
    if (op.bias) db_ = {context, n, units};
  }

  std::size_t scratch_bytes() const {
    return std::max(std::max(y_.scratch_bytes(), dx_.scratch_bytes()),
                    std::max(dw_.scratch_bytes(), db_.scratch_bytes()));
  }

  void forward(const DenseOp& op, const Io<D>& io) const {
    y_(io.device, io.x, io.w, op.bias ? io.w + op.kernel_size() : nullptr, io.y, io.scratch);
  }
  void backward(const DenseOp& op, const Io<D>& io) const {
    if (io.count == 0)
      return io.device.clear(reinterpret_cast<std::byte*>(io.dw), weights_ * sizeof(float));
    dw_(io.device, io.x, io.dy, nullptr, io.dw, io.scratch);
    if (op.bias) db_(io.device, io.dy, io.dw + op.kernel_size(), io.scratch);
    if (io.dx != nullptr) dx_(io.device, io.dy, io.w, nullptr, io.dx, io.scratch);
  }

 private:
  struct Steps {
    std::int64_t outer, depth;
  };
  static MatrixProduct<Precision> product(CudaContext& context, const ProductSizes& sizes,
                                          Steps left, Steps right, bool of_weights) {
    static constexpr Source source{"dense", matrix_product_text, plain_matrices_text};
    // The left one's steps: from row to row, and along the depth. The right one's: along the depth,
    // and from column to column.
    return {context,
            source,
            {{"LEFT_M", left.outer},
             {"LEFT_K", left.depth},
             {"RIGHT_K", right.outer},
             {"RIGHT_N", right.depth},
             {"LEFT_ALONG", left.depth == 1},
             {"RIGHT_ALONG", right.outer == 1}},
            sizes,
            of_weights};
  }

  std::size_t weights_ = 0;
  MatrixProduct<Precision> y_, dx_, dw_;
  ColumnSums<Precision> db_;
};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<DenseOp, BasicCuda<Precision>> : KernelTraits {
  using D = BasicCuda<Precision>;
  using Prepared = detail::cuda::DenseCalls<Precision>;
  static constexpr bool keeps_x = true;

  static Prepared prepare(const DenseOp& op, CudaContext& context, std::size_t count) {
    return Prepared(op, context, count);
  }
  [[gnu::noinline]] static void forward(const DenseOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op, io);
  }
  [[gnu::noinline]] static void backward(const DenseOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op, io);
  }
};

static_assert(HasKernel<DenseOp, Cuda>);

}  // namespace lockstep
