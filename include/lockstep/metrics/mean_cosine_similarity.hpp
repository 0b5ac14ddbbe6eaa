/// \file
/// Cosine of the angle between prediction and target, the mean over examples.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include "lockstep/concepts/metric.hpp"
#include "lockstep/losses/cosine_similarity.hpp"

namespace lockstep {

/// One row of MeanCosineSimilarity. State: the sum of cosines, examples.
struct MeanCosineSimilarityOp {
  using target_type = float;
  CosineSimilarityOp loss;

  constexpr std::size_t size() const { return loss.size(); }
  constexpr std::size_t target_size() const { return loss.target_size(); }

  template <class T>
  void example(const T* p, const T* t, double* state) const {
    state[0] -= loss.example(p, t, static_cast<T*>(nullptr), 1.0);
    state[1] += 1;
  }
};

/// Keras' metric CosineSimilarity: 1 where prediction and target point the same way, -1 where they
/// point apart. The loss CosineSimilarity has the other sign. \code
///   ls::Model model{Net{}, strategy, ls::CosineSimilarity{}, ls::SGD{},
///   ls::MeanCosineSimilarity{}};
/// \endcode
struct MeanCosineSimilarity {
  static constexpr std::string_view name = CosineSimilarity::name;
  static constexpr std::size_t state_size = 2;

  template <class Target>
  static constexpr bool accepts(Shape out) {
    return std::same_as<Target, float> && CosineSimilarity::accepts(out);
  }
  template <class Target>
  constexpr MeanCosineSimilarityOp op(Shape out) const {
    return {{out.size()}};
  }
  double result(const double* state) const { return state[1] > 0 ? state[0] / state[1] : 0; }
};

}  // namespace lockstep
