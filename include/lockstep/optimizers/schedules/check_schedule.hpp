/// \file
/// What the schedules check of their numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"
#include "lockstep/core/text.hpp"

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

/// \throws UsageError if a number of steps is negative or below `least`.
[[gnu::cold]] inline void check_steps(std::string_view schedule, std::string_view what,
                                      std::uint64_t steps, std::uint64_t least = 1) {
  check_count(text({schedule, " ", what}), steps, least);
}

}  // namespace lockstep::detail
