/// \file
/// The outputs that a network names.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/core/row_part.hpp"

namespace lockstep::detail {

/// The parts of a network's output row; empty if its output has no name.
template <class Net>
constexpr auto named_outputs() {
  if constexpr (requires { Net::outputs.size(); })
    return Net::outputs;
  else
    return std::array<RowPart, 0>{};
}

}  // namespace lockstep::detail
