/// \file
/// Names the non-finite values of a training step, for TerminateOnNaN's error.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// Lists replicas whose loss is not finite, then parameters whose gradients, or with finite
/// gradients whose weights, are not finite, then the penalty. Empty if all values are finite.
/// `losses` has one value per slice of the batch; `replica_of(i)` computed the i-th.
LOCKSTEP_COLD_DECL std::string name_not_finite(
    std::span<const NamedParameter> parameters,
    FunctionRef<bool(const NamedParameter&)> gradient_is_finite,
    FunctionRef<bool(const NamedParameter&)> weight_is_finite, std::span<const double> losses,
    FunctionRef<std::size_t(std::size_t)> replica_of, double penalty);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/not_finite.ipp"
#endif
