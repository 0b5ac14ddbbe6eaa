/// \file
/// Checks of the schedules' parameters.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep::detail {

/// \throws UsageError if a parameter is not positive and finite.
inline void check_above_0(std::string_view schedule, std::string_view what, double value) {
  if (!(value > 0) || !is_finite(value))
    throw UsageError("{} {} {}: must be finite and above 0", schedule, what, value);
}

/// \throws UsageError if a parameter is negative or not finite.
inline void check_not_below_0(std::string_view schedule, std::string_view what, double value) {
  if (!(value >= 0) || !is_finite(value))
    throw UsageError("{} {} {}: must be finite and not negative", schedule, what, value);
}

/// \throws UsageError if a number of steps was negative before its conversion, or below `least`.
inline void check_steps(std::string_view schedule, std::string_view what, std::uint64_t steps,
                        std::uint64_t least = 1) {
  check_count(format_text("{} {}", schedule, what), steps, least);
}

}  // namespace lockstep::detail
