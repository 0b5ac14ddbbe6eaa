/// \file
/// Conv2D or Dense with the ReLU behind it as one op, and Conv2D with ReLU and pooling: what the
/// devices that do them in one pass share.
#pragma once

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/conv2d.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/max_pooling2d.hpp"

namespace lockstep {

/// y = max(conv(x), 0).
struct ConvReLUOp {
  Conv2DOp conv;
  ReLUOp relu;
  constexpr Shape out() const { return conv.out(); }
  constexpr double flops() const { return conv.flops(); }
  bool operator==(const ConvReLUOp&) const = default;
};

/// y = max(dense(x), 0).
struct DenseReLUOp {
  DenseOp dense;
  ReLUOp relu;
  constexpr Shape out() const { return dense.out(); }
  constexpr double flops() const { return dense.flops(); }
  bool operator==(const DenseReLUOp&) const = default;
};

/// The beginning of an image network: y = max over windows of max(conv(x), 0), x the batch, so that
/// nobody wants its gradient. A device's kernel may say that it `fits` fewer of them.
struct ConvReLUPoolOp {
  static constexpr bool reads_batch = true;
  Conv2DOp conv;
  ReLUOp relu;
  MaxPooling2DOp pool;

  /// Windows that lie within the image, none over another: each element of the convolution is
  /// needed once.
  static constexpr bool fits(const Conv2DOp& conv, const ReLUOp&, const MaxPooling2DOp& pool) {
    const Window rows = pool.window.rows(), columns = pool.window.columns();
    const auto is_whole = [](const Window& w) {
      return w.before() + w.after() == 0 && w.stride >= w.kernel;
    };
    return conv.channels() <= 4 && is_whole(rows) && is_whole(columns);
  }
  constexpr Shape out() const { return pool.window.out(); }
  constexpr double flops() const { return conv.flops(); }
  bool operator==(const ConvReLUPoolOp&) const = default;
};

namespace detail {
/// The op whose result goes through the ReLU.
constexpr const Conv2DOp& before_relu(const ConvReLUOp& op) { return op.conv; }
constexpr const DenseOp& before_relu(const DenseReLUOp& op) { return op.dense; }

/// A base of their kernels: `Calls`, which they prepare, is given the op before the ReLU. Backward
/// needs of the result only which elements are positive.
template <class Op, class D, class Calls>
struct FusedReLUKernel : KernelTraits {
  using Prepared = Calls;
  static constexpr bool keeps_x = true, keeps_y = true;

  static void forward(const Op& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(before_relu(op), io);
  }
  static void backward(const Op& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(before_relu(op), io);
  }
};
}  // namespace detail

static_assert(Op<ConvReLUOp> && Op<DenseReLUOp> && Op<ConvReLUPoolOp>);

}  // namespace lockstep
