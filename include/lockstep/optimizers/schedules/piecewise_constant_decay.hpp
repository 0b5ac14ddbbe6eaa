/// \file
/// A rate that changes at given steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/optimizers/schedules/check_schedule.hpp"

namespace lockstep {

/// Keras' PiecewiseConstantDecay: values[0] up to and including step boundaries[0], values[1] up to
/// and including boundaries[1], and so on; the last value after the last boundary.
/// \code
///   ls::SGD{.learning_rate = ls::PiecewiseConstantDecay{.boundaries = {10'000, 20'000},
///                                                       .values = {0.1, 0.01, 0.001}}}
/// \endcode
struct PiecewiseConstantDecay {
  static constexpr std::string_view name = "piecewise_constant_decay";
  std::vector<std::uint64_t> boundaries;
  std::vector<double> values;

  /// \throws UsageError if there is not one value more than boundaries, the boundaries do not
  /// ascend, or a value is negative.
  void check() const {
    if (values.size() != boundaries.size() + 1)
      throw UsageError("{}: {} boundaries and {} values; give one value more than boundaries", name,
                       boundaries.size(), values.size());
    for (std::size_t i = 1; i < boundaries.size(); ++i)
      if (boundaries[i] <= boundaries[i - 1])
        throw UsageError("{}: boundary {} comes after {}; give them in ascending order", name,
                         boundaries[i], boundaries[i - 1]);
    for (const std::uint64_t b : boundaries) detail::check_steps(name, "boundary", b, 0);
    for (const double value : values) detail::check_not_below_0(name, "value", value);
  }
  // A template, so that only programs that use it compile it.
  template <class Number = std::pair<std::string_view, double>>
  std::vector<Number> numbers() const {
    std::vector<Number> result;
    for (const std::uint64_t b : boundaries)
      result.emplace_back("boundary", static_cast<double>(b));
    for (const double v : values) result.emplace_back("value", v);
    return result;
  }
  double operator()(std::uint64_t step) const {
    std::size_t at = 0;
    while (at < boundaries.size() && boundaries[at] < step) ++at;
    return values[at];
  }
};

}  // namespace lockstep
