/// \file
/// Counts passed by users. Invariant: a negative number is rejected, never converted to a huge one.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// A parameter for a number of examples, batches or rounds that records whether the argument was
/// negative: with std::uint64_t, `take(-1)` would mean `take(18446744073709551615)`.
/// \code
///   auto take(Count count) { return first(count.checked("take", "give at least 0")); }
/// \endcode
class Count {
 public:
  constexpr Count(std::uint64_t count) : count_(count) {}
  template <std::signed_integral N>
  constexpr Count(N count) : count_(static_cast<std::uint64_t>(count)), is_negative_(count < N{}) {}

  /// The count. \throws UsageError "call(-1): remedy" if it is negative.
  constexpr std::uint64_t checked(std::string_view call, std::string_view remedy) const {
    if (is_negative_) throw_negative(call, remedy);
    return count_;
  }

 private:
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_negative(std::string_view call,
                                                      std::string_view remedy) const;

  std::uint64_t count_;
  bool is_negative_ = false;
};

namespace detail {
/// Checks a count in an aggregate of options, where a negative number has already been converted:
/// values from 2^63 on are reported as the negative number. \throws UsageError("<what> is -1; it
/// must be at least 1").
LOCKSTEP_COLD_DECL void check_count(std::string_view what, std::uint64_t count,
                                    std::uint64_t least = 1);
}  // namespace detail

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/count.ipp"
#endif
