/// \file
/// Cross-entropy against a distribution over classes. Invariant: the largest logit is subtracted
/// first, so that no exponential overflows.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include "lockstep/concepts/loss.hpp"
#include "lockstep/losses/label_smoothing.hpp"

namespace lockstep {

/// One example of CategoricalCrossentropy.
struct CategoricalCrossentropyOp {
  using target_type = float;
  std::size_t classes = 1;
  bool from_logits = false;
  double smoothing = 0;
  std::size_t positions = 1;

  static constexpr bool by_rows = true;
  constexpr std::size_t rows() const { return positions; }
  constexpr CategoricalCrossentropyOp row() const { return {classes, from_logits, smoothing, 1}; }
  constexpr std::size_t size() const { return classes * positions; }
  constexpr std::size_t target_size() const { return size(); }

  template <class T>
  double example(const T* p, const T* t, T* g, double scale) const {
    if (positions > 1) return detail::mean_over_rows(*this, p, t, g, scale);
    return from_logits ? of_logits(p, t, g, static_cast<T>(scale))
                       : of_probabilities(p, t, g, static_cast<T>(scale));
  }
  bool operator==(const CategoricalCrossentropyOp&) const = default;

 private:
  template <class T>
  T smoothed(T t) const {
    const T s = static_cast<T>(smoothing);
    return t * (1 - s) + s / static_cast<T>(classes);
  }

  /// The loss is the sum over k of t[k] (log(sum exp(p)) - p[k]); its gradient is
  /// (sum t) softmax(p) - t.
  template <class T>
  double of_logits(const T* p, const T* target, T* g, T scale) const {
    T largest = p[0];
    for (std::size_t k = 1; k < classes; ++k) largest = p[k] > largest ? p[k] : largest;
    double sum = 0, whole = 0, inner = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      const T e = std::exp(p[k] - largest), t = smoothed(target[k]);
      if (g != nullptr) g[k] = e;
      sum += static_cast<double>(e);
      whole += static_cast<double>(t);
      inner += static_cast<double>(t * (p[k] - largest));
    }
    if (g != nullptr)
      for (std::size_t k = 0; k < classes; ++k)
        g[k] = scale * (static_cast<T>(whole) * g[k] / static_cast<T>(sum) - smoothed(target[k]));
    return whole * std::log(sum) - inner;
  }

  /// The loss is the sum over k of -t[k] log(c[k]), where q = p / sum p and c is q clipped. With
  /// a[k] = t[k] / c[k], 0 where q was clipped, its gradient is (sum a q - a) / sum p.
  template <class T>
  double of_probabilities(const T* p, const T* target, T* g, T scale) const {
    constexpr T low = T(1e-7), high = T(1) - low;
    double whole = 0, loss = 0, inner = 0;
    for (std::size_t k = 0; k < classes; ++k) whole += static_cast<double>(p[k]);
    const T sum = static_cast<T>(whole);
    for (std::size_t k = 0; k < classes; ++k) {
      const T q = p[k] / sum, c = q < low ? low : q > high ? high : q, t = smoothed(target[k]);
      const T a = q < low || q > high ? T(0) : t / c;
      loss -= static_cast<double>(t * std::log(c));
      inner += static_cast<double>(a * q);
      if (g != nullptr) g[k] = a;
    }
    if (g != nullptr)
      for (std::size_t k = 0; k < classes; ++k) g[k] = scale * (static_cast<T>(inner) - g[k]) / sum;
    return loss;
  }
};

/// Keras' CategoricalCrossentropy: the sum of -t log p over the classes. Targets are one-hot, or
/// probabilities, as real values, and have the shape of the predictions. Classes are along the last
/// axis; the loss of an example is the mean over all other axes.
///
/// From logits, p is softmax(prediction). From probabilities, p is normalized again and clipped to
/// [1e-7, 1 - 1e-7]. `label_smoothing` s replaces a target t with t (1 - s) + s / classes.
/// \code
///   ls::CategoricalCrossentropy{.from_logits = true, .label_smoothing = 0.1}
/// \endcode
struct CategoricalCrossentropy {
  using target_type = float;
  static constexpr std::string_view name = "categorical_crossentropy";
  bool from_logits = false;
  double label_smoothing = 0;

  /// \throws UsageError if the label smoothing is outside [0, 1].
  void check() const { detail::check_label_smoothing(name, label_smoothing); }
  /// The options, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 1> numbers() const {
    return {{{"label smoothing", label_smoothing}}};
  }
  static constexpr bool accepts(Shape out) { return out.rank >= 1; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr CategoricalCrossentropyOp op(Shape out) const {
    return {static_cast<std::size_t>(out.channels()), from_logits, label_smoothing,
            positions(out).size()};
  }
};

}  // namespace lockstep
