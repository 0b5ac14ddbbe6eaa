/// \file
/// The option about what replicas exchange. strategy.hpp finds apply_wire by argument-dependent lookup,
/// so that other units do not include compressed gradients.
#pragma once

#include <lockstep/wire.hpp>

#include "support/options.hpp"

namespace support {

/// Applies --wire. PowerSGD begins early, since runs of programs may be short.
inline void apply_wire(lockstep::wire::Format& format, const Options& options) {
  if (options.wire == "bfloat16") format = lockstep::wire::bfloat16{};
  if (options.wire == "top_k") format = lockstep::wire::TopK{};
  if (options.wire == "power_sgd") format = lockstep::wire::PowerSgd{.start = 10};
}

}  // namespace support
