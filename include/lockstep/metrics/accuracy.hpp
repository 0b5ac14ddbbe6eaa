/// \file
/// The fraction of correct predictions: binary, sparse or categorical, by shape and target type.
/// Invariants: of equal maxima the first counts, as in Keras; comparisons with a NaN output are
/// false, so only the loss shows a NaN.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/metric.hpp"

namespace lockstep {

/// One example of Accuracy. State: correct predictions, all predictions.
template <class Target>
struct AccuracyOp {
  using target_type = Target;
  std::size_t classes = 1, positions = 1;
  std::optional<std::int32_t> ignored{};

  static constexpr bool by_rows = true;
  constexpr std::size_t rows() const { return positions; }
  constexpr AccuracyOp row() const { return {classes, 1, ignored}; }
  constexpr std::size_t size() const { return classes * positions; }
  constexpr std::size_t target_size() const {
    return std::same_as<Target, float> ? size() : positions;
  }
  std::size_t counted(const std::int32_t* labels) const {
    return detail::count_labels(labels, positions, ignored);
  }

  template <class T>
  void example(const T* p, const target_as<Target, T>* t, double* state, double weight = 1) const {
    if (positions > 1) return detail::add_rows(*this, p, t, state, weight);
    if (detail::is_ignored(ignored, t)) return;
    state[0] += is_correct(p, t) ? weight : 0;
    state[1] += weight;
  }
  bool operator==(const AccuracyOp&) const = default;

 private:
  template <class T>
  bool is_correct(const T* p, const target_as<Target, T>* t) const {
    if (classes == 1) return static_cast<target_as<Target, T>>(p[0] > T(0.5)) == t[0];
    if constexpr (std::same_as<Target, float>)
      return argmax(p) == argmax(t);
    else
      return argmax(p) == static_cast<std::size_t>(t[0]);
  }
  template <class T>
  std::size_t argmax(const T* v) const {
    std::size_t best = 0;
    for (std::size_t k = 1; k < classes; ++k)
      if (v[k] > v[best]) best = k;
    return best;
  }
};

/// Keras' 'accuracy', which depends on the last axis of the output and on the target type:
///
/// - one output: is p > 0.5 equal to the target? (binary)
/// - labels: is the index of the largest output equal to the label? (sparse categorical)
/// - one-hot targets: does it equal the index of the largest target? (categorical)
///
/// An output with further axes has a prediction per position, such as a pixel, and the fraction is
/// that of all positions. Labels equal to `ignore_class` do not count.
/// \code
///   ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{}, ls::SGD{},
///                   ls::Accuracy{}};
///   ls::Accuracy{.ignore_class = 255}
/// \endcode
struct Accuracy {
  static constexpr std::string_view name = "accuracy";
  static constexpr std::size_t state_size = 2;
  static constexpr bool reads_mask = true;
  std::optional<int> ignore_class = {};

  /// The options, which the processes of a job compare.
  auto numbers() const { return detail::ignored_numbers(ignore_class); }
  template <class Target>
  static constexpr bool accepts(Shape out) {
    return (std::same_as<Target, std::int32_t> || std::same_as<Target, float>) && out.rank >= 1;
  }
  template <class Target>
  constexpr AccuracyOp<Target> op(Shape out) const {
    return {static_cast<std::size_t>(out.channels()), positions_of(out).size(), ignore_class};
  }
  double result(const double* state) const { return state[1] != 0 ? state[0] / state[1] : 0; }
};

static_assert(MetricOf<Accuracy, std::int32_t, shape(10)> && MetricOf<Accuracy, float, shape(1)>);
static_assert(RowwiseMetric<AccuracyOp<std::int32_t>> && RowwiseMetric<AccuracyOp<float>>);

}  // namespace lockstep
