/// \file
/// Names what of a training step is not finite, for the error of a callback.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

/// Empty if all is finite. `losses`: of each slice of the batch, of which a replica has
/// `slices_each`. Weights are named where their gradients are finite.
LOCKSTEP_COLD_DECL std::string name_not_finite(
    std::span<const NamedParameter> parameters,
    FunctionRef<bool(const NamedParameter&)> gradient_is_finite,
    FunctionRef<bool(const NamedParameter&)> weight_is_finite, std::span<const double> losses,
    std::size_t slices_each, double penalty);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/not_finite.ipp"
#endif
