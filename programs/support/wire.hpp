/// \file
/// The option about what replicas exchange. strategy.hpp finds apply_wire by argument-dependent lookup,
/// so that other units do not include compressed gradients.
#pragma once

#include <lockstep/wire.hpp>

#include "support/options.hpp"

namespace support {

/// Applies --wire and --wire-warm-up. PowerSGD begins early, since runs of programs may be short.
inline void apply_wire(lockstep::wire::Format& format, const Options& options) {
  if (options.wire == "bfloat16") format = lockstep::wire::bfloat16{};
  if (options.wire == "top_k")
    format = lockstep::wire::TopK{.warm_up = options.wire_warm_up.value_or(0)};
  if (options.wire == "power_sgd")
    format = lockstep::wire::PowerSgd{.start = options.wire_warm_up.value_or(10)};
}

}  // namespace support
