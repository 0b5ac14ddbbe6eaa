/// \file
/// Conv2D or Dense with the ReLU behind it as one op: what the devices that do both in one pass
/// share.
#pragma once

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

static_assert(Op<ConvReLUOp> && Op<DenseReLUOp>);

}  // namespace lockstep
