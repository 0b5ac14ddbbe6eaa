/// \file
/// The negated cosine of the angle between prediction and target.
#pragma once

#include <cmath>
#include <cstddef>
#include <string_view>

#include "lockstep/concepts/loss.hpp"

namespace lockstep {

/// One example of CosineSimilarity: -c, where c = sum p t / (|p| |t|) and both norms are at least
/// 1e-7. Its gradient is (c p / |p| - t / |t|) / |p|, without the first term where |p| < 1e-7.
struct CosineSimilarityOp {
  using target_type = float;
  std::size_t elements = 1, positions = 1;

  static constexpr bool by_rows = true;
  constexpr std::size_t rows() const { return positions; }
  constexpr CosineSimilarityOp row() const { return {elements, 1}; }
  constexpr std::size_t size() const { return elements * positions; }
  constexpr std::size_t target_size() const { return size(); }
  static constexpr double least = 1e-7;

  template <class T>
  double example(const T* p, const T* t, T* g, double scale) const {
    if (positions > 1) return detail::mean_over_rows(*this, p, t, g, scale);
    double pp = 0, tt = 0, pt = 0;
    for (std::size_t k = 0; k < elements; ++k) {
      pp += static_cast<double>(p[k]) * static_cast<double>(p[k]);
      tt += static_cast<double>(t[k]) * static_cast<double>(t[k]);
      pt += static_cast<double>(p[k]) * static_cast<double>(t[k]);
    }
    // In double, where products of the norms of float vectors neither overflow nor underflow.
    const double p_norm = std::sqrt(pp), t_norm = std::sqrt(tt);
    const double p_size = p_norm < least ? least : p_norm, t_size = t_norm < least ? least : t_norm;
    const double cosine = pt / p_size / t_size;
    if (g != nullptr) {
      const double along = p_norm < least ? 0 : cosine / p_size;
      for (std::size_t k = 0; k < elements; ++k)
        g[k] = static_cast<T>(
            scale * (along * static_cast<double>(p[k]) - static_cast<double>(t[k]) / t_size) /
            p_size);
    }
    return -cosine;
  }
  bool operator==(const CosineSimilarityOp&) const = default;
};

/// Keras' CosineSimilarity: -sum p t / (|p| |t|), which is -1 if prediction and target have the same
/// direction and 1 if they have opposite directions. Targets have the shape of the predictions.
/// Vectors are along the last axis; the loss of an example is the mean over all other axes.
/// \code
///   ls::Model model{Net{}, strategy, ls::CosineSimilarity{}, ls::SGD{}};
/// \endcode
struct CosineSimilarity {
  using target_type = float;
  static constexpr std::string_view name = "cosine_similarity";

  static constexpr bool accepts(Shape out) { return out.rank >= 1; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr CosineSimilarityOp op(Shape out) const {
    return {static_cast<std::size_t>(out.channels()), positions(out).size()};
  }
};

}  // namespace lockstep
