/// \file
/// The outputs that a network names, and losses and metrics for these.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>

#include "lockstep/core/row_part.hpp"

namespace lockstep {

/// A loss that is made for the outputs of a network: `L::on<Net>` is the loss of all its outputs.
template <class L>
concept BindsOutputs = requires { requires L::binds_outputs; };

/// A metric of one output, `M::output`: `M::at<place>` is the metric of that place.
template <class M>
concept OfOutput = requires {
  { M::output } -> std::convertible_to<std::string_view>;
};

namespace detail {

/// The parts of a network's output row; empty if its output has no name.
template <class Net>
constexpr auto named_outputs() {
  if constexpr (requires { Net::outputs.size(); })
    return Net::outputs;
  else
    return std::array<RowPart, 0>{};
}

}  // namespace detail
}  // namespace lockstep
