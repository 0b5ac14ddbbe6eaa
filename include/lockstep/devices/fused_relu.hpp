/// \file
/// Conv2D or Dense fused with the ReLU that follows, and Conv2D fused with ReLU and max pooling:
/// the ops shared by all devices that have a one-pass kernel for them.
#pragma once

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/pooling/max_pooling2d.hpp"

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

/// The first layers of an image network: y = max over windows of max(conv(x), 0). x is the batch
/// itself, so no gradient with respect to x is needed. A device's kernel may restrict the rule
/// further by its own `fits`.
struct ConvReLUPoolOp {
  static constexpr bool reads_batch = true;
  Conv2DOp conv;
  ReLUOp relu;
  MaxPooling2DOp pool;

  /// Requires at most 4 channels in one group, and windows that neither overlap nor reach into
  /// padding: each element of the convolution then belongs to at most one window.
  static constexpr bool fits(const Conv2DOp& conv, const ReLUOp&, const MaxPooling2DOp& pool) {
    const Window rows = pool.window.rows(), columns = pool.window.columns();
    const auto is_whole = [](const Window& w) {
      return w.before() + w.after() == 0 && w.stride >= w.kernel;
    };
    return conv.groups == 1 && conv.channels() <= 4 && is_whole(rows) && is_whole(columns);
  }
  constexpr Shape out() const { return pool.window.out(); }
  constexpr double flops() const { return conv.flops(); }
  bool operator==(const ConvReLUPoolOp&) const = default;
};

namespace detail {
/// The op whose output is the ReLU's input.
constexpr const Conv2DOp& before_relu(const ConvReLUOp& op) { return op.conv; }
constexpr const DenseOp& before_relu(const DenseReLUOp& op) { return op.dense; }

/// Base of the kernels for ConvReLUOp and DenseReLUOp. `Calls` is the prepared state of the
/// unfused op, built with its ReLU enabled. Backward needs y only for its sign: dy passes where
/// y is positive or NaN.
template <class Op, class D, class Calls>
struct FusedReLUKernel : KernelTraits {
  using Prepared = Calls;
  static constexpr bool keeps_x = true, keeps_y = true, skips_dw = true;

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
