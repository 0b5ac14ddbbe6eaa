/// \file
/// What the schedules check of their numbers.
#pragma once

#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"

namespace lockstep::detail {

/// \throws UsageError if a number of a schedule is not above 0.
[[gnu::cold]] inline void check_above_0(std::string_view schedule, std::string_view what,
                                        double value) {
  if (!(value > 0) || !is_finite(value))
    throw UsageError({schedule, " ", what, " ", value, ": must be a number above 0"});
}

/// \throws UsageError if a number of a schedule is negative or none.
[[gnu::cold]] inline void check_not_below_0(std::string_view schedule, std::string_view what,
                                            double value) {
  if (!(value >= 0) || !is_finite(value))
    throw UsageError({schedule, " ", what, " ", value, ": must be a number that is not negative"});
}

}  // namespace lockstep::detail
