#pragma once

#include "lockstep/core/count.hpp"

namespace lockstep {

void Count::throw_negative(std::string_view call, std::string_view remedy) const {
  throw UsageError("{}({}): {}", call, static_cast<std::int64_t>(count_), remedy);
}

}  // namespace lockstep

namespace lockstep::detail {

void check_count(std::string_view what, std::uint64_t count, std::uint64_t least) {
  const auto signed_count = static_cast<std::int64_t>(count);
  if (signed_count < 0 || count < least)
    throw UsageError("{} is {}; it must be at least {}", what, signed_count, least);
}

}  // namespace lockstep::detail
