/// \file
/// The sum of two values: what joins the branches of Residual.
#pragma once

#include "lockstep/concepts/layer.hpp"

namespace lockstep {

/// y = x + x2.
struct AddOp {
  Shape in;
  constexpr Shape out() const { return in; }
  bool operator==(const AddOp&) const = default;
};

static_assert(Op<AddOp>);

}  // namespace lockstep
