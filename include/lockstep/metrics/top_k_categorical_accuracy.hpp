/// \file
/// The fraction of examples whose class is among the k largest outputs. Invariant: an output equal
/// to the k-th largest is among them, as in Keras; an example with a NaN output never counts.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/concepts/metric.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep {

/// One example of TopKCategoricalAccuracy. State: correct examples, all examples.
template <class Target>
struct TopKCategoricalAccuracyOp {
  using target_type = Target;
  std::size_t classes = 1, k = 5, positions = 1;
  std::optional<std::int32_t> ignored{};

  static constexpr bool by_rows = true;
  constexpr std::size_t rows() const { return positions; }
  constexpr TopKCategoricalAccuracyOp row() const { return {classes, k, 1, ignored}; }
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
    std::size_t label = 0, larger = 0;
    if constexpr (std::same_as<Target, float>) {
      for (std::size_t i = 1; i < classes; ++i)
        if (t[i] > t[label]) label = i;
    } else {
      label = static_cast<std::size_t>(t[0]);
    }
    bool has_nan = false;
    for (std::size_t i = 0; i < classes; ++i) {
      larger += p[i] > p[label];
      has_nan = has_nan || detail::is_nan(p[i]);
    }
    state[0] += larger < k && !has_nan ? weight : 0;
    state[1] += weight;
  }
};

/// Keras' TopKCategoricalAccuracy, or SparseTopKCategoricalAccuracy if targets are labels: the
/// fraction of examples whose class is among the k largest outputs. Classes are along the last
/// axis; an output with further axes has a prediction per position. Labels equal to `ignore_class`
/// do not count.
/// \code
///   ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{}, ls::SGD{},
///                   ls::TopKCategoricalAccuracy{.k = 3}};
/// \endcode
struct TopKCategoricalAccuracy {
  static constexpr std::string_view name = "top_k_categorical_accuracy";
  static constexpr std::size_t state_size = 2;
  static constexpr bool reads_mask = true;
  std::size_t k = 5;
  std::optional<int> ignore_class = {};

  /// \throws UsageError if k is 0.
  void check() const { detail::check_count(format_text("{} k", name), k); }
  /// The options, which the processes of a job compare.
  auto numbers() const {
    auto all = detail::ignored_numbers(ignore_class);
    all.emplace_back("k", static_cast<double>(k));
    return all;
  }
  template <class Target>
  static constexpr bool accepts(Shape out) {
    return (std::same_as<Target, std::int32_t> || std::same_as<Target, float>) && out.rank >= 1;
  }
  template <class Target>
  constexpr TopKCategoricalAccuracyOp<Target> op(Shape out) const {
    return {static_cast<std::size_t>(out.channels()), k, positions_of(out).size(), ignore_class};
  }
  double result(const double* state) const { return state[1] != 0 ? state[0] / state[1] : 0; }
};

}  // namespace lockstep
