/// \file
/// The cosine of the angle between prediction and target, averaged over examples.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <string_view>

#include "lockstep/concepts/metric.hpp"

namespace lockstep {

/// One example of MeanCosineSimilarity: sum p t / (|p| |t|), where both norms are at least 1e-7.
/// State: the sum of cosines, their number.
struct MeanCosineSimilarityOp {
  using target_type = float;
  std::size_t elements = 1, positions = 1;

  static constexpr bool by_rows = true;
  constexpr std::size_t rows() const { return positions; }
  constexpr MeanCosineSimilarityOp row() const { return {elements, 1}; }
  constexpr std::size_t size() const { return elements * positions; }
  constexpr std::size_t target_size() const { return size(); }

  template <class T>
  void example(const T* p, const T* t, double* state, double weight = 1) const {
    if (positions > 1) return detail::add_rows(*this, p, t, state, weight);
    double pp = 0, tt = 0, pt = 0;
    for (std::size_t k = 0; k < elements; ++k) {
      pp += static_cast<double>(p[k]) * static_cast<double>(p[k]);
      tt += static_cast<double>(t[k]) * static_cast<double>(t[k]);
      pt += static_cast<double>(p[k]) * static_cast<double>(t[k]);
    }
    state[0] += weight * (pt / std::max(std::sqrt(pp), 1e-7) / std::max(std::sqrt(tt), 1e-7));
    state[1] += weight;
  }
};

/// Keras' metric CosineSimilarity: 1 if prediction and target have the same direction, -1 if they
/// have opposite directions. Vectors are along the last axis. The loss CosineSimilarity has the
/// opposite sign.
/// \code
///   ls::Model model{Net{}, strategy, ls::CosineSimilarity{}, ls::SGD{},
///                   ls::MeanCosineSimilarity{}};
/// \endcode
struct MeanCosineSimilarity {
  static constexpr std::string_view name = "cosine_similarity";
  static constexpr std::size_t state_size = 2;
  static constexpr bool reads_mask = true;

  template <class Target>
  static constexpr bool accepts(Shape out) {
    return std::same_as<Target, float> && out.rank >= 1;
  }
  template <class Target>
  constexpr MeanCosineSimilarityOp op(Shape out) const {
    return {static_cast<std::size_t>(out.channels()), positions_of(out).size()};
  }
  double result(const double* state) const { return state[1] != 0 ? state[0] / state[1] : 0; }
};

}  // namespace lockstep
