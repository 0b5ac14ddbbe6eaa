/// \file
/// Mean of the squared differences.
#pragma once

#include <cstddef>
#include <string_view>

#include "lockstep/concepts/loss.hpp"

namespace lockstep {

/// One example of MeanSquaredError: the mean over k of (p[k] - t[k])^2. Its gradient is
/// 2 (p - t) / size.
struct MeanSquaredErrorOp {
  using target_type = float;
  std::size_t elements = 1, positions = 1;

  constexpr std::size_t rows() const { return positions; }
  constexpr MeanSquaredErrorOp row() const { return {elements / positions, 1}; }
  constexpr std::size_t size() const { return elements; }
  constexpr std::size_t target_size() const { return elements; }

  template <class T>
  double example(const T* p, const T* t, T* g, double scale) const {
    const T slope = static_cast<T>(2 * scale / static_cast<double>(elements));
    double sum = 0;
    for (std::size_t k = 0; k < elements; ++k) {
      const T difference = p[k] - t[k];
      sum += static_cast<double>(difference) * static_cast<double>(difference);
      if (g != nullptr) g[k] = slope * difference;
    }
    return sum / static_cast<double>(elements);
  }
  bool operator==(const MeanSquaredErrorOp&) const = default;
};

/// Keras' MeanSquaredError: the mean of (p - t)^2 over all elements of an example. Targets have the
/// shape of the predictions.
/// \code
///   ls::Model model{Net{}, strategy, ls::MeanSquaredError{}, ls::SGD{}};
/// \endcode
struct MeanSquaredError {
  using target_type = float;
  static constexpr std::string_view name = "mean_squared_error";

  static constexpr bool accepts(Shape) { return true; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  constexpr MeanSquaredErrorOp op(Shape out) const { return {out.size(), positions(out).size()}; }
};

static_assert(Loss<MeanSquaredError> && RowwiseLoss<MeanSquaredErrorOp>);

}  // namespace lockstep
