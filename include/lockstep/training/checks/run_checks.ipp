#pragma once

#include "lockstep/training/checks/run_checks.hpp"

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

const FitOptions& checked_options(const FitOptions& options,
                                  std::optional<std::uint64_t> examples) {
  check_options(options);
  if (!examples && !options.steps_per_epoch)
    throw UsageError("fit: the data never end, so an epoch has no end; set .steps_per_epoch");
  return options;
}

void check_options(const FitOptions& o) {
  if (o.epochs < 1) throw UsageError("fit: epochs is {}; it must be at least 1", o.epochs);
  if (o.initial_epoch < 0)
    throw UsageError("fit: initial_epoch is {}; it must be at least 0", o.initial_epoch);
  if (o.validation_freq < 1)
    throw UsageError("fit: validation_freq is {}; it must be at least 1", o.validation_freq);
  if (o.steps_per_epoch) check_count("fit: steps_per_epoch", *o.steps_per_epoch);
  if (o.validation_steps) check_count("fit: validation_steps", *o.validation_steps);
  check_count("fit: steps_per_execution", o.steps_per_execution);
  check_count("fit: verify_every", o.verify_every, 0);
}

void check_shape(const char* what, Shape found, Shape expected, const char* remedy) {
  if (found == expected) return;
  if (found.size() == expected.size())  // such as one number and a vector of one
    remedy = "give that shape where the data are made, as an argument of tensors or sample_weights";
  throw UsageError("data: the {} have shape {}, but the model expects {}; {}", what,
                   to_string(found), to_string(expected), remedy);
}

void check_owners(std::size_t owners, std::span<const NamedParameter> parameters) {
  const auto trainable = static_cast<std::size_t>(std::count_if(
      parameters.begin(), parameters.end(), [](const NamedParameter& p) { return p.trainable; }));
  if (owners > trainable)
    throw UsageError(
        "parameter_server: the job has {} servers, but the model has {} trainable parameters; start "
        "at most as many servers",
        owners, trainable);
}

void check_metric_targets(std::string_view metric, std::size_t read, std::string_view loss,
                          std::size_t given) {
  if (read != given)
    throw UsageError(
        "metric {}: it compares {} target values per example, but the loss {} has {}; remove the "
        "metric, or write one for such targets",
        metric, read, loss, given);
}

void check_ignored(std::string_view metric, const std::optional<std::int32_t>& of_metric,
                   const std::optional<std::int32_t>& of_loss, int classes, bool may_ignore) {
  if (!of_loss || of_metric == of_loss || (*of_loss >= 0 && *of_loss < classes)) return;
  if (!may_ignore)
    throw UsageError(
        "metric {}: the loss ignores label {}, which is not one of the model's {} classes, and the "
        "metric cannot ignore labels; remove it",
        metric, *of_loss, classes);
  throw UsageError(
      "metric {}: the loss ignores label {}, which is not one of the model's {} classes; set "
      ".ignore_class = {} in the metric, too",
      metric, *of_loss, classes, *of_loss);
}

void check_ignores_labels(std::string_view metric, const std::optional<std::int32_t>& of_metric,
                          std::string_view loss) {
  if (of_metric)
    throw UsageError(
        "metric {}: it ignores label {}, but the targets of loss {} are real numbers; remove "
        ".ignore_class",
        metric, *of_metric, loss);
}

void check_metric_weights(std::string_view metric, std::size_t rows, std::string_view loss,
                          Shape positions) {
  if (positions.size() > 1 && rows != positions.size())
    throw UsageError(
        "metric {}: it has one weight per example, but the loss {} has weights of shape {}; remove "
        "Weighted, or add 'rows' and 'row' to the metric's op",
        metric, loss, to_string(positions));
}

void check_not_empty(std::optional<std::uint64_t> examples, const char* what) {
  if (examples == std::uint64_t{0})
    throw UsageError("{} data are empty; check take, skip and the files", what);
}

void check_class_weights(const ClassWeights& weights, const Shape& target, const Shape& weighed,
                         bool are_labels, bool are_rows, int outputs) {
  const bool have_class = (target.size() == 1 && weighed.size() == 1) ||
                          (are_labels ? weighed == target
                                      : target.rank == 1 || (weighed == positions_of(target) &&
                                                             (are_rows || target.channels() == 1)));
  if (!weights.empty() && !have_class)
    throw UsageError(
        "fit: class_weight: a target of shape {} does not denote a single class; use "
        "sample_weights instead",
        to_string(target));
  const int classes = are_labels ? outputs : target.channels();
  for (const auto& [number, weight] : weights)
    if (number >= classes && (are_labels || target.channels() > 1))  // one real value: any class
      throw UsageError(
          "fit: class_weight: class {} has a weight, but the model's outputs are classes 0 to {}; "
          "change the last layer or the weights",
          number, classes - 1);
}

void check_ends(const char* call, std::optional<std::uint64_t> examples,
                std::optional<std::uint64_t> steps) {
  if (steps) check_count(format_text("{}: steps", call), *steps, 0);
  if (!examples && !steps) throw UsageError("{}: the data never end; set .steps", call);
}

std::optional<std::uint64_t> step_count(std::optional<std::uint64_t> examples, std::size_t batch,
                                        std::optional<std::uint64_t> steps) {
  if (steps || !examples) return steps;
  return (*examples + batch - 1) / batch;
}

void check_labels(const std::int32_t* y, std::size_t count, std::size_t first, int classes,
                  const Shape& target, const std::optional<std::int32_t>& ignored) {
  const std::size_t each = target.size();
  for (std::size_t i = 0; i < count * each; ++i) {
    if (y[i] >= 0 && y[i] < classes) continue;
    if (ignored == y[i]) continue;
    std::string place;
    if (target.rank > 0) {
      std::size_t rest = i % each;
      for (int axis = target.rank; axis-- > 0;) {
        const auto extent = static_cast<std::size_t>(target[axis]);
        place = format_text("{}{}{}", rest % extent, place.empty() ? "" : ", ", place);
        rest /= extent;
      }
      place = format_text(" at ({})", place);
    }
    throw UsageError(
        "labels: example {} of the batch has label {}{}, but the model's outputs are classes 0 to "
        "{}; change the last layer or the labels{}",
        first + i / each, y[i], place, classes - 1,
        place.empty() ? ""
                      : format_text(", or ignore them with .ignore_class = {} in the loss", y[i]));
  }
}

std::uint64_t first_pass(std::uint64_t begun, const FitOptions& options) {
  const auto epoch = static_cast<std::uint64_t>(options.initial_epoch);
  if (!options.steps_per_epoch) return std::max(begun, epoch);
  return epoch > 0 && begun > 0 ? begun - 1 : begun;  // continues within the last pass
}

std::uint64_t examples_before(std::uint64_t batch, const FitOptions& options) {
  const auto epochs = static_cast<std::uint64_t>(options.initial_epoch);
  const std::uint64_t steps = *options.steps_per_epoch;
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  if (epochs > 0 && (steps > most / epochs || batch > most / (epochs * steps)))
    throw UsageError(
        "fit: initial_epoch {} times {} steps overflows the count of examples; lower one of them",
        options.initial_epoch, steps);
  return epochs * steps * batch;
}

}  // namespace lockstep::detail
