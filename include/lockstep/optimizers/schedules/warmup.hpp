/// \file
/// A linear rise of the rate before any schedule.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/optimizers/schedules/check_schedule.hpp"

namespace lockstep {

/// A rate that rises linearly from `from` to the first rate of `then`, in `steps` steps. Then `then`
/// begins: its steps are counted from the end of the warm-up.
///
///     from + (then(0) - from) step / steps    before `steps`
///     then(step - steps)                      from there on
///
/// `then` is a number, a schedule, or a function of the step. PyTorch: SequentialLR of LinearLR and
/// another schedule. Before a CosineDecay it is what its own `warmup_target` does.
/// \code
///   ls::AdamW{.learning_rate = ls::Warmup{
///       .steps = 100, .then = ls::CosineDecay{.initial_learning_rate = 3e-4, .decay_steps = 1000}}}
///   ls::Muon{.learning_rate = ls::Warmup{.steps = 500, .then = 0.02}}
/// \endcode
struct Warmup {
  static constexpr std::string_view name = "warmup";
  std::uint64_t steps = 0;
  double from = 0;
  Schedule then;

  /// \throws UsageError if `steps` is not set, or `from` is negative.
  void check() const {
    detail::check_steps(name, "steps", steps);
    detail::check_not_below_0(name, "from", from);
  }
  /// Text that the processes of a job compare.
  std::string description() const {
    const std::array<std::pair<std::string_view, double>, 3> numbers{
        {{"steps", static_cast<double>(steps)}, {"from", from}, {"then", then(0)}}};
    return describe_schedule(name, numbers) +
           (then.is_constant() ? "" : " by " + then.description());
  }
  double operator()(std::uint64_t step) const {
    if (step >= steps) return then(step - steps);
    return from + (then(0) - from) * static_cast<double>(step) / static_cast<double>(steps);
  }
};

}  // namespace lockstep
