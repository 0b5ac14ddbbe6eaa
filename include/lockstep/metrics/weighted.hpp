/// \file
/// A metric that applies sample weights, like those of Keras' `weighted_metrics`.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "lockstep/concepts/metric.hpp"

namespace lockstep {

/// A metric of Keras' `weighted_metrics`: M with each example's contribution multiplied by its
/// weight, which comes from `sample_weights`, `class_weight` of `fit`, or a batch in memory. All
/// other metrics count all examples equally, as in Keras. Without weights it equals M.
///
/// In logs it has M's name, prefixed with "weighted_" if the model also has M itself, as in Keras.
/// \code
///   ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{}, ls::SGD{},
///                   ls::Accuracy{}, ls::Weighted<ls::Accuracy>{}};
///   ls::Weighted<ls::Precision>{{.threshold = 0}}
/// \endcode
template <Metric M>
struct Weighted {
  static constexpr bool is_weighted = true, reads_mask = reads_output_mask<M>;
  static constexpr std::string_view name = M::name;
  static constexpr std::size_t state_size = M::state_size;
  M metric = {};

  /// \throws what the metric's check() throws.
  void check() const {
    if constexpr (requires { metric.check(); }) metric.check();
  }
  template <class Target>
  static constexpr bool accepts(Shape out) {
    return M::template accepts<Target>(out);
  }
  template <class Target>
  constexpr auto op(Shape out) const {
    return metric.template op<Target>(out);
  }
  double result(const double* state) const { return metric.result(state); }
};

/// Whether a metric's kernel gets the sample weights.
template <class M>
inline constexpr bool is_weighted_metric = requires { requires M::is_weighted; };

namespace detail {

/// For the names in logs: 0, or for a weighted metric 1 + the place of "weighted_" in its name.
template <class M>
constexpr std::size_t weighted_at() {
  if constexpr (!is_weighted_metric<M>)
    return 0;
  else if constexpr (requires { M::name_begin; })
    return 1 + M::name_begin;
  else
    return 1;
}

}  // namespace detail

}  // namespace lockstep
