#pragma once

#include "lockstep/strategies/local_replicas.hpp"

#include "lockstep/collectives/spin.hpp"

namespace lockstep::detail {

Waits Waits::beside(std::size_t replicas, std::size_t threads) {
  const auto cores = static_cast<std::size_t>(usable_cores());
  return {.spins = threads <= cores ? short_spins : 0, .overlap = threads + replicas <= cores};
}

}  // namespace lockstep::detail
