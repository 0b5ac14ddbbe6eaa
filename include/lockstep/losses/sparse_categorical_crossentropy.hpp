/// \file
/// Cross-entropy against class labels. Invariants: labels are in [0, classes), which the data
/// pipeline checks, not the loss; the largest logit is subtracted first, so that no exponential
/// overflows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/concepts/loss.hpp"

namespace lockstep {

/// One example of SparseCategoricalCrossentropy.
struct SparseCategoricalCrossentropyOp {
  using target_type = std::int32_t;
  int classes = 1;
  bool from_logits = false;
  std::size_t positions = 1;
  std::optional<std::int32_t> ignored{};

  static constexpr bool by_rows = true;
  constexpr std::size_t rows() const { return positions; }
  constexpr SparseCategoricalCrossentropyOp row() const {
    return {classes, from_logits, 1, ignored};
  }
  constexpr std::size_t size() const { return static_cast<std::size_t>(classes) * positions; }
  constexpr std::size_t target_size() const { return positions; }
  std::size_t counted(const std::int32_t* labels) const {
    return detail::count_labels(labels, positions, ignored);
  }

  template <class T>
  double example(const T* p, const std::int32_t* label, T* g, double scale) const {
    if (positions > 1) return detail::mean_over_rows(*this, p, label, g, scale);
    if (ignored == *label) {
      if (g != nullptr) std::fill_n(g, size(), T(0));
      return 0;
    }
    const auto y = static_cast<std::size_t>(*label);
    return from_logits ? of_logits(p, y, g, scale) : of_probabilities(p, y, g, scale);
  }
  bool operator==(const SparseCategoricalCrossentropyOp&) const = default;

 private:
  /// The loss is log(sum exp(p)) - p[y]; its gradient is softmax(p) - [k == y].
  template <class T>
  double of_logits(const T* p, std::size_t y, T* g, double scale) const {
    T largest = p[0];
    for (std::size_t k = 1; k < size(); ++k) largest = p[k] > largest ? p[k] : largest;
    double whole = 0;
    for (std::size_t k = 0; k < size(); ++k) {
      const T e = std::exp(p[k] - largest);
      if (g != nullptr) g[k] = e;
      whole += static_cast<double>(e);
    }
    const T sum = static_cast<T>(whole);
    if (g != nullptr) {
      const T factor = static_cast<T>(scale) / sum;
      for (std::size_t k = 0; k < size(); ++k) g[k] *= factor;
      g[y] -= static_cast<T>(scale);
    }
    return static_cast<double>(std::log(sum) + (largest - p[y]));
  }

  /// The loss is log(sum q) - log(q[y]), where q is p clipped; its gradient is
  /// 1 / sum q - [k == y] / q[y], and 0 where p was clipped.
  template <class T>
  double of_probabilities(const T* p, std::size_t y, T* g, double scale) const {
    constexpr T low = T(1e-7), high = T(1) - low;
    const auto clip = [](T v) { return v < low ? low : v > high ? high : v; };
    double whole = 0;
    for (std::size_t k = 0; k < size(); ++k) whole += static_cast<double>(clip(p[k]));
    const T sum = static_cast<T>(whole), chosen = clip(p[y]);
    if (g != nullptr) {
      for (std::size_t k = 0; k < size(); ++k) {
        const T slope = T(1) / sum - (k == y ? T(1) / chosen : T(0));
        g[k] = p[k] < low || p[k] > high ? T(0) : slope * static_cast<T>(scale);
      }
    }
    return static_cast<double>(std::log(sum) - std::log(chosen));
  }
};

/// Keras' SparseCategoricalCrossentropy: -log p[label]. Targets are class indices, predictions have
/// one value per class along the last axis. A target has all other axes, such as a label per pixel
/// or per token; the loss is the mean over all labels of the batch.
///
/// From logits: log(sum exp(p)) - p[label]. From probabilities, as in Keras: p is clipped to
/// [1e-7, 1 - 1e-7] and normalized again, log(sum p) - log(p[label]). Keras' default for
/// `from_logits` is false: the model ends in Softmax.
///
/// Labels equal to `ignore_class` have no loss and no gradient, and the mean is over the other
/// labels of the global batch; it is 0 if there are none. The ignored class may be outside of [0,
/// classes), such as 255 or -1. With sample weights w, it is the sum of w l divided by the number
/// of those labels.
/// \code
///   ls::SparseCategoricalCrossentropy{.from_logits = true}
///   ls::SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = 255}
/// \endcode
struct SparseCategoricalCrossentropy {
  using target_type = std::int32_t;
  static constexpr std::string_view name = "sparse_categorical_crossentropy";
  bool from_logits = false;
  std::optional<int> ignore_class = {};

  /// The options, which the processes of a job compare; `from_logits` always is.
  auto numbers() const { return detail::ignored_numbers(ignore_class); }
  static constexpr bool accepts(Shape out) { return out.rank >= 1; }
  static constexpr Shape target_shape(Shape out) { return positions_of(out); }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr SparseCategoricalCrossentropyOp op(Shape out) const {
    return {out.channels(), from_logits, positions(out).size(), ignore_class};
  }
};

static_assert(Loss<SparseCategoricalCrossentropy> && RowwiseLoss<SparseCategoricalCrossentropyOp>);

}  // namespace lockstep
