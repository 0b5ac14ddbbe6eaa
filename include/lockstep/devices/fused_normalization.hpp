/// \file
/// BatchNormalization fused with its epilogue (ReLU, or Add and ReLU): the ops shared by all
/// devices that have a one-pass kernel for them.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/merging/add.hpp"
#include "lockstep/layers/normalization/batch_normalization.hpp"

namespace lockstep {

/// y = max(normalization(x), 0).
struct BatchNormalizationReLUOp {
  BatchNormalizationOp normalization;
  ReLUOp relu;
  constexpr Shape out() const { return normalization.out(); }
  bool operator==(const BatchNormalizationReLUOp&) const = default;
};

/// y = max(normalization(x[0]) + x[1], 0).
struct BatchNormalizationAddReLUOp {
  BatchNormalizationOp normalization;
  AddOp add;
  ReLUOp relu;
  constexpr Shape out() const { return normalization.out(); }
  static constexpr bool fits(const BatchNormalizationOp&, const AddOp& add, const ReLUOp&) {
    return add.operands() == 2;
  }
  bool operator==(const BatchNormalizationAddReLUOp&) const = default;
};

static_assert(Op<BatchNormalizationReLUOp> && Op<BatchNormalizationAddReLUOp>);

}  // namespace lockstep
