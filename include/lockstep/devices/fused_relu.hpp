/// \file
/// Conv2D or Dense with the ReLU behind it as one op: what the devices that do both in one pass
/// share.
#pragma once

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/conv2d.hpp"
#include "lockstep/layers/dense.hpp"

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

  [[gnu::noinline]] static void forward(const Op& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(before_relu(op), io);
  }
  [[gnu::noinline]] static void backward(const Op& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(before_relu(op), io);
  }
};
}  // namespace detail

static_assert(Op<ConvReLUOp> && Op<DenseReLUOp>);

}  // namespace lockstep
