#pragma once

#include "lockstep/optimizers/schedule.hpp"

#include "lockstep/core/format_text.hpp"

namespace lockstep {

Schedule::Schedule(const Schedule&) = default;

Schedule::Schedule(Schedule&&) noexcept = default;

Schedule& Schedule::operator=(Schedule other) noexcept {
  constant_ = other.constant_;
  function_.swap(other.function_);
  description_.swap(other.description_);
  return *this;
}

Schedule::~Schedule() = default;

double Schedule::operator()(std::uint64_t step) const {
  if (!function_) return constant_;
  const double rate = function_(step);
  if (!is_rate(rate)) throw_bad_rate(rate, format_text(" in step {}", step));
  return rate;
}

void Schedule::throw_bad_rate(double rate, std::string_view when) {
  throw UsageError(
      "learning rate {}{}: must be finite and not negative; use a small positive one such as 0.01",
      rate, when);
}

}  // namespace lockstep
