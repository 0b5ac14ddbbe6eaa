/// \file
/// Cross-entropy against class labels. Invariants: labels are in [0, classes), which the data
/// pipeline checks, not the loss; the largest logit is subtracted first, so that no exponential
/// overflows.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/loss.hpp"

namespace lockstep {

/// One example of SparseCategoricalCrossentropy.
struct SparseCategoricalCrossentropyOp {
  using target_type = std::int32_t;
  int classes = 1;
  bool from_logits = false;

  constexpr std::size_t size() const { return static_cast<std::size_t>(classes); }
  constexpr std::size_t target_size() const { return 1; }

  template <class T>
  double example(const T* p, const std::int32_t* label, T* g, double scale) const {
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
/// one value per class.
///
/// From logits: log(sum exp(p)) - p[label]. From probabilities, as in Keras: p is clipped to
/// [1e-7, 1 - 1e-7] and normalized again, log(sum p) - log(p[label]). Keras' default for
/// `from_logits` is false: the model ends in Softmax.
/// \code
///   ls::SparseCategoricalCrossentropy{.from_logits = true}
/// \endcode
struct SparseCategoricalCrossentropy {
  using target_type = std::int32_t;
  static constexpr std::string_view name = "sparse_categorical_crossentropy";
  bool from_logits = false;

  static constexpr bool accepts(Shape out) { return out.rank == 1; }
  static constexpr Shape target_shape(Shape) { return shape(); }
  constexpr SparseCategoricalCrossentropyOp op(Shape out) const {
    return {out.channels(), from_logits};
  }
};

static_assert(Loss<SparseCategoricalCrossentropy> && RowwiseLoss<SparseCategoricalCrossentropyOp>);

}  // namespace lockstep
