/// \file
/// Area under a curve that a moving threshold draws. Invariants: state is a histogram of the
/// predictions of yeses and one of noes, so it adds up in any number of parts; thresholds are those
/// of Keras, evenly spaced, one below 0 and one above 1.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/core/finite.hpp"
#include "lockstep/metrics/binary_counts.hpp"

namespace lockstep {

/// The curve of AUC: recall over the share of wrong yeses among noes, or precision over recall.
enum class Curve { roc, pr };

/// One row of AUC. State: for each threshold but the last, yeses between it and the next one; then
/// noes likewise.
template <class Target>
struct AUCOp {
  using target_type = Target;
  std::size_t elements = 1, thresholds = 200;
  bool from_logits = false;

  constexpr std::size_t size() const { return elements; }
  constexpr std::size_t target_size() const { return elements; }

  template <class T>
  void example(const T* p, const target_as<Target, T>* t, double* state, double weight = 1) const {
    const std::size_t buckets = thresholds - 1;
    const T count = static_cast<T>(buckets);
    for (std::size_t k = 0; k < elements; ++k) {
      // In T, as Keras: a float that a threshold stands for is not above it.
      const T v = from_logits ? 1 / (1 + std::exp(-p[k])) : p[k];
      // Above threshold b, which is b / buckets, and not above the next; NaN with the lowest.
      const T place = std::ceil(v * count) - 1;
      const std::size_t b = detail::is_nan(v) || !(place > 0) ? 0
                            : place >= count                  ? buckets - 1
                                                              : static_cast<std::size_t>(place);
      state[b + (t[k] != 0 ? 0 : buckets)] += weight;
    }
  }
};

namespace detail {

/// The area from the histograms of `n` buckets.
inline double area_under_curve(Curve curve, std::size_t n, const double* yes, const double* no) {
  const auto divide = [](double a, double b) { return b > 0 ? a / b : 0; };
  double all_yes = 0, all_no = 0;
  for (std::size_t b = 0; b < n; ++b) all_yes += yes[b], all_no += no[b];
  double area = 0, tp = 0, fp = 0;  // yeses and noes above the threshold, from the highest down
  for (std::size_t b = n; b-- > 0;) {
    const double next_tp = tp + yes[b], next_fp = fp + no[b];
    if (curve == Curve::roc) {
      area += divide(no[b], all_no) * divide(tp + next_tp, 2 * all_yes);
    } else {
      // Davis and Goadrich, 2006: the precision between two points is no straight line.
      const double said = tp + fp, next_said = next_tp + next_fp;
      const double slope = divide(yes[b], next_said - said), rest = tp - slope * said;
      const double ratio = said > 0 && next_said > 0 ? next_said / said : 1;
      area += divide(slope * (yes[b] + rest * std::log(ratio)), all_yes);
    }
    tp = next_tp;
    fp = next_fp;
  }
  return area;
}

}  // namespace detail

/// Keras' AUC: the area under the ROC or the precision-recall curve, drawn through evenly spaced
/// thresholds. Predictions are probabilities, or logits with `from_logits`; targets are 0 and 1;
/// all elements of an example count alike.
/// \code
///   ls::Model model{Net{}, strategy, ls::BinaryCrossentropy{.from_logits = true}, ls::Adam{},
///                   ls::AUC<>{.curve = ls::Curve::pr, .from_logits = true}};
/// \endcode
template <std::size_t Thresholds = 200>
struct AUC {
  static_assert(Thresholds >= 3, "lockstep::AUC: it needs 3 thresholds or more; 200 is usual");
  static constexpr std::string_view name = "auc";
  static constexpr std::size_t buckets = Thresholds - 1, state_size = 2 * buckets;
  Curve curve = Curve::roc;
  bool from_logits = false;

  /// For a job's processes to compare.
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
    return {out.size(), Thresholds, from_logits};
  }
  double result(const double* state) const {
    return detail::area_under_curve(curve, buckets, state, state + buckets);
  }
};

}  // namespace lockstep
