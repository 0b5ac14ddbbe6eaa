/// \file
/// Compressed gradients: the formats of ls::wire. Include lockstep.hpp and a device as well, and
/// cluster.hpp for several processes.
#pragma once

#include "lockstep/core/compiler.hpp"

#include <concepts>
#include <utility>

#include "lockstep/concepts/strategy.hpp"
#include "lockstep/strategies/updated_by.hpp"
#include "lockstep/training/step/compressed.hpp"
#include "lockstep/training/step/wire_format.hpp"

namespace lockstep {

/// The strategy whose replicas exchange gradients in this format.
template <Strategy S, class F>
  requires std::convertible_to<F, wire::Format> && (!std::same_as<F, wire::Format>)
UpdatedBy<S, wire::Format> operator|(S strategy, const F& format) {
  return std::move(strategy) | wire::Format(format);
}

namespace wire {
using lockstep::operator|;  // for strategies of other namespaces
}

}  // namespace lockstep
