/// \file
/// Area under the ROC or precision-recall curve. Invariants: the state is a histogram of the
/// predictions for positives and one for negatives, so it can be summed over any partition of the
/// data; thresholds are those of Keras, evenly spaced, one below 0 and one above 1.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/metrics/binary_counts.hpp"

namespace lockstep {

/// The curve of AUC: `roc` is recall (true positive rate) over the false positive rate, `pr` is
/// precision over recall.
enum class Curve { roc, pr };

/// One example of AUC. State: for each threshold except the last, the number of positives predicted
/// between it and the next one; then the negatives likewise.
template <class Target>
struct AUCOp {
  using target_type = Target;
  std::size_t elements = 1, thresholds = 200;
  bool from_logits = false;
  std::size_t positions = 1;

  constexpr std::size_t rows() const { return positions; }
  constexpr AUCOp row() const { return {elements / positions, thresholds, from_logits, 1}; }
  constexpr std::size_t size() const { return elements; }
  constexpr std::size_t target_size() const { return elements; }

  template <class T>
  void example(const T* p, const target_as<Target, T>* t, double* state, double weight = 1) const {
    const std::size_t buckets = thresholds - 1;
    const T count = static_cast<T>(buckets);
    for (std::size_t k = 0; k < elements; ++k) {
      // In T, as in Keras: a prediction that equals a threshold rounded to T is not above it.
      const T v = from_logits ? 1 / (1 + std::exp(-p[k])) : p[k];
      // The bucket above threshold b / buckets and up to the next one; NaN counts as the lowest.
      const T place = std::ceil(v * count) - 1;
      const std::size_t b = detail::is_nan(v) || !(place > 0) ? 0
                            : place >= count                  ? buckets - 1
                                                              : static_cast<std::size_t>(place);
      state[b + (t[k] != 0 ? 0 : buckets)] += weight;
    }
  }
};

namespace detail {

/// The area under the curve, from histograms of `n` buckets for positives and negatives.
inline double area_under_curve(Curve curve, std::size_t n, const double* positives,
                               const double* negatives) {
  const auto divide = [](double a, double b) { return b > 0 ? a / b : 0; };
  double all_positives = 0, all_negatives = 0;
  for (std::size_t b = 0; b < n; ++b) all_positives += positives[b], all_negatives += negatives[b];
  double area = 0, tp = 0, fp = 0;  // true and false positives, from the highest threshold down
  for (std::size_t b = n; b-- > 0;) {
    const double next_tp = tp + positives[b], next_fp = fp + negatives[b];
    if (curve == Curve::roc) {
      area += divide(negatives[b], all_negatives) * divide(tp + next_tp, 2 * all_positives);
    } else {
      // Precision is not linear in recall between two points (Davis and Goadrich, 2006).
      const double predicted = tp + fp, next_predicted = next_tp + next_fp;
      const double slope = divide(positives[b], next_predicted - predicted);
      const double rest = tp - slope * predicted;
      const double ratio = predicted > 0 && next_predicted > 0 ? next_predicted / predicted : 1;
      area += divide(slope * (positives[b] + rest * std::log(ratio)), all_positives);
    }
    tp = next_tp;
    fp = next_fp;
  }
  return area;
}

}  // namespace detail

/// Keras' AUC: the area under the ROC or the precision-recall curve, approximated by evenly spaced
/// thresholds. Predictions are probabilities, or logits with `from_logits`; targets are 0 and 1.
/// All elements of an example count equally.
/// \code
///   ls::Model model{Net{}, strategy, ls::BinaryCrossentropy{.from_logits = true}, ls::Adam{},
///                   ls::AUC<>{.curve = ls::Curve::pr, .from_logits = true}};
/// \endcode
template <std::size_t Thresholds = 200>
struct AUC {
  static_assert(Thresholds >= 3, "lockstep::AUC: at least 3 thresholds are needed; 200 is usual");
  static constexpr std::string_view name = "auc";
  static constexpr std::size_t buckets = Thresholds - 1, state_size = 2 * buckets;
  Curve curve = Curve::roc;
  bool from_logits = false;

  /// The options, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 3> numbers() const {
    return {{{"thresholds", static_cast<double>(Thresholds)},
             {"precision-recall", curve == Curve::pr ? 1 : 0},
             {"from logits", from_logits ? 1 : 0}}};
  }
  template <class Target>
  static constexpr bool accepts(Shape out) {
    return detail::is_binary<Target>(out);
  }
  template <class Target>
  constexpr AUCOp<Target> op(Shape out) const {
    return {out.size(), Thresholds, from_logits, positions_of(out).size()};
  }
  double result(const double* state) const {
    return detail::area_under_curve(curve, buckets, state, state + buckets);
  }
};

}  // namespace lockstep
