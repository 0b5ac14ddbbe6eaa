/// \file
/// Confusion matrix, and the balanced accuracy as its value in logs. Invariant: of equal maxima the
/// first counts, as in Accuracy.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/metric.hpp"

namespace lockstep {

/// One example of ConfusionMatrix. State: examples by label (row) and prediction (column).
template <class Target>
struct ConfusionMatrixOp {
  using target_type = Target;
  std::size_t classes = 2;

  constexpr std::size_t size() const { return classes; }
  constexpr std::size_t target_size() const { return std::same_as<Target, float> ? classes : 1; }

  template <class T>
  void example(const T* p, const target_as<Target, T>* t, double* state, double weight = 1) const {
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
/// labels, columns predictions. `metric_state` returns that of the last evaluation or epoch; the
/// value in logs is the balanced accuracy, that is, the mean recall over the classes.
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

  template <class Target>
  static constexpr bool accepts(Shape out) {
    return (std::same_as<Target, std::int32_t> || std::same_as<Target, float>) && out.rank == 1 &&
           out.size() == Classes;
  }
  template <class Target>
  constexpr ConfusionMatrixOp<Target> op(Shape out) const {
    return {out.size()};
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
