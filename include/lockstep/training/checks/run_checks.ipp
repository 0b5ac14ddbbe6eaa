#pragma once

#include "lockstep/training/checks/run_checks.hpp"

namespace lockstep::detail {

void check_options(const FitOptions& o) {
  if (o.epochs < 1) throw UsageError({"fit: epochs is ", o.epochs, "; it must be at least 1"});
  if (o.initial_epoch < 0)
    throw UsageError({"fit: initial_epoch is ", o.initial_epoch, "; it must be at least 0"});
  if (o.validation_freq < 1)
    throw UsageError({"fit: validation_freq is ", o.validation_freq, "; it must be at least 1"});
  if (o.steps_per_epoch) check_count("fit: steps_per_epoch", *o.steps_per_epoch);
  if (o.validation_steps) check_count("fit: validation_steps", *o.validation_steps);
  check_count("fit: steps_per_execution", o.steps_per_execution);
  check_count("fit: verify_every", o.verify_every, 0);
}

void check_shape(const char* what, Shape found, Shape expected, const char* remedy) {
  if (found != expected)
    throw UsageError(
        {"data: the ", what, " have shape ", found, ", the model takes ", expected, "; ", remedy});
}

void check_metric_targets(std::string_view metric, std::size_t read, std::string_view loss,
                          std::size_t given) {
  if (read != given)
    throw UsageError({"metric ", metric, ": it compares ", read,
                      " target values of each example, and the loss ", loss, " takes ", given,
                      "; leave it out, or write a metric for such targets"});
}

std::uint64_t first_pass(std::uint64_t begun, const FitOptions& options) {
  const auto epoch = static_cast<std::uint64_t>(options.initial_epoch);
  if (!options.steps_per_epoch) return std::max(begun, epoch);
  return epoch > 0 && begun > 0 ? begun - 1 : begun;  // the pass goes on
}

std::uint64_t examples_before(std::uint64_t batch, const FitOptions& options) {
  const auto epochs = static_cast<std::uint64_t>(options.initial_epoch);
  const std::uint64_t steps = *options.steps_per_epoch;
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  if (epochs > 0 && (steps > most / epochs || batch > most / (epochs * steps)))
    throw UsageError({"fit: initial_epoch ", options.initial_epoch, " of ", steps,
                      " steps is more examples than can be counted; lower one of them"});
  return epochs * steps * batch;
}

}  // namespace lockstep::detail
