/// \file
/// Confusion matrix, and the balanced accuracy as its value in logs. Invariant: of equal maxima the
/// first counts, as in Accuracy.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/concepts/metric.hpp"

namespace lockstep {

/// One example of ConfusionMatrix. State: examples by label (row) and prediction (column).
template <class Target>
struct ConfusionMatrixOp {
  using target_type = Target;
  std::size_t classes = 2, positions = 1;
  std::optional<std::int32_t> ignored{};

  static constexpr bool by_rows = true;
  constexpr std::size_t rows() const { return positions; }
  constexpr ConfusionMatrixOp row() const { return {classes, 1, ignored}; }
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
    std::size_t label = 0;
    if constexpr (std::same_as<Target, float>)
      label = largest(t);
    else
      label = static_cast<std::size_t>(t[0]);
    state[label * classes + largest(p)] += weight;
  }

 private:
  template <class T>
  std::size_t largest(const T* v) const {
    std::size_t best = 0;
    for (std::size_t k = 1; k < classes; ++k)
      if (v[k] > v[best]) best = k;
    return best;
  }
};

/// The confusion matrix of `Classes` x `Classes` counts, as tf.math.confusion_matrix: rows are
/// labels, columns predictions. Classes are along the last axis of the output; further axes are
/// positions, such as pixels, which count each. Labels equal to `ignore_class` do not.
/// `metric_state` returns that of the last evaluation or epoch; the value in logs is the balanced
/// accuracy, that is, the mean recall over the classes.
/// \code
///   ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{}, ls::SGD{},
///                   ls::ConfusionMatrix<10>{}};
///   model.evaluate(test);
///   const auto matrix = model.metric_state<ls::ConfusionMatrix<10>>();
///   const double threes_predicted_as_eights = matrix[3 * 10 + 8];
/// \endcode
template <std::size_t Classes>
struct ConfusionMatrix {
  static_assert(Classes >= 2, "lockstep::ConfusionMatrix: at least 2 classes are needed");
  static constexpr std::string_view name = "confusion_matrix";
  static constexpr std::size_t state_size = Classes * Classes;
  std::optional<int> ignore_class = {};

  /// The options, which the processes of a job compare.
  auto numbers() const { return detail::ignored_numbers(ignore_class); }
  template <class Target>
  static constexpr bool accepts(Shape out) {
    return (std::same_as<Target, std::int32_t> || std::same_as<Target, float>) && out.rank >= 1 &&
           static_cast<std::size_t>(out.channels()) == Classes;
  }
  template <class Target>
  constexpr ConfusionMatrixOp<Target> op(Shape out) const {
    return {Classes, positions_of(out).size(), ignore_class};
  }
  double result(const double* state) const {
    double shares = 0, classes = 0;
    for (std::size_t label = 0; label < Classes; ++label) {
      double all = 0;
      for (std::size_t k = 0; k < Classes; ++k) all += state[label * Classes + k];
      if (all == 0) continue;
      shares += state[label * (Classes + 1)] / all;
      classes += 1;
    }
    return classes > 0 ? shares / classes : 0;
  }
};

}  // namespace lockstep
