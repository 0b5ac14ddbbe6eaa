/// \file
/// Kullback-Leibler divergence between two distributions over classes.
#pragma once

#include <cmath>
#include <cstddef>
#include <string_view>

#include "lockstep/concepts/loss.hpp"

namespace lockstep {

/// One example of KLDivergence: the sum over k of t[k] log(t[k] / p[k]), both clipped. Its gradient
/// is -t / p, and 0 where p was clipped.
struct KLDivergenceOp {
  using target_type = float;
  std::size_t classes = 1, positions = 1;

  static constexpr bool by_rows = true;
  constexpr std::size_t rows() const { return positions; }
  constexpr KLDivergenceOp row() const { return {classes, 1}; }
  constexpr std::size_t size() const { return classes * positions; }
  constexpr std::size_t target_size() const { return size(); }

  template <class T>
  double example(const T* p, const T* target, T* g, double scale) const {
    if (positions > 1) return detail::mean_over_rows(*this, p, target, g, scale);
    constexpr T low = T(1e-7), high = 1;
    const auto clip = [](T v) { return v < low ? low : v > high ? high : v; };
    double sum = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      const T t = clip(target[k]), q = clip(p[k]);
      sum += static_cast<double>(t * std::log(t / q));
      if (g != nullptr) g[k] = p[k] < low || p[k] > high ? T(0) : static_cast<T>(-scale) * t / q;
    }
    return sum;
  }
  bool operator==(const KLDivergenceOp&) const = default;
};

/// Keras' KLDivergence: the sum over the classes of t log(t / p), both clipped to [1e-7, 1].
/// Predictions and targets are probabilities along the last axis; end the model with Softmax. The
/// loss of an example is the mean over all other axes.
/// \code
///   ls::Model model{Net{}, strategy, ls::KLDivergence{}, ls::SGD{}};
/// \endcode
struct KLDivergence {
  using target_type = float;
  static constexpr std::string_view name = "kl_divergence";

  static constexpr bool accepts(Shape out) { return out.rank >= 1; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr KLDivergenceOp op(Shape out) const {
    return {static_cast<std::size_t>(out.channels()), positions(out).size()};
  }
};

}  // namespace lockstep
