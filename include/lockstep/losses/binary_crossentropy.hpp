/// \file
/// Binary cross-entropy. Invariant: from logits no exponential overflows.
#pragma once

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "lockstep/losses/elementwise_loss.hpp"
#include "lockstep/losses/label_smoothing.hpp"

namespace lockstep {

/// One element of BinaryCrossentropy; t is smoothed to t (1 - s) + s / 2 first.
///
///     from logits          max(p, 0) - p t + log(1 + exp(-|p|))      slope sigmoid(p) - t
///     from probabilities   -t log p - (1 - t) log(1 - p)             slope (p - t) / (p (1 - p)),
///                          with p clipped                            0 where p was clipped
struct BinaryCrossentropyRule {
  bool from_logits = false;
  double smoothing = 0;

  template <class T>
  LossTerm<T> operator()(T p, T target) const {
    const T s = static_cast<T>(smoothing), t = target * (1 - s) + s / 2;
    if (from_logits) {
      const T e = std::exp(-std::abs(p));
      return {(p < 0 ? T(0) : p) - p * t + std::log1p(e), (p < 0 ? e : T(1)) / (1 + e) - t};
    }
    constexpr T low = T(1e-7), high = T(1) - low;
    const T c = p < low ? low : p > high ? high : p;
    const bool clipped = p < low || p > high;
    return {-(t * std::log(c) + (1 - t) * std::log(1 - c)),
            clipped ? T(0) : (1 - t) / (1 - c) - t / c};
  }
  bool operator==(const BinaryCrossentropyRule&) const = default;
};

/// Keras' BinaryCrossentropy: the mean of -t log p - (1 - t) log(1 - p) over all elements of an
/// example, with p clipped to [1e-7, 1 - 1e-7]; from logits, p is sigmoid(prediction).
///
/// Targets are 0 and 1, or probabilities, as real values, and have the shape of the predictions.
/// `label_smoothing` s replaces a target t with t (1 - s) + s / 2. Keras' default for `from_logits`
/// is false: the model ends in Sigmoid.
/// \code
///   ls::BinaryCrossentropy{.from_logits = true}
/// \endcode
struct BinaryCrossentropy {
  using target_type = float;
  static constexpr std::string_view name = "binary_crossentropy";
  bool from_logits = false;
  double label_smoothing = 0;

  /// \throws UsageError if the label smoothing is outside [0, 1].
  void check() const { detail::check_label_smoothing(name, label_smoothing); }
  /// The options, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 1> numbers() const {
    return {{{"label smoothing", label_smoothing}}};
  }
  static constexpr bool accepts(Shape) { return true; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr ElementwiseLossOp<BinaryCrossentropyRule> op(Shape out) const {
    return {out.size(), {from_logits, label_smoothing}, positions(out).size()};
  }
};

}  // namespace lockstep
