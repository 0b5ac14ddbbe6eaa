/// \file
/// Weights of classes. Invariant: a class that is not named weighs 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"

namespace lockstep {

/// Keras' `class_weight`: numbers of classes, and how much an example of each counts.
/// \code
///   model.fit(train, {.epochs = 3, .class_weight = {{0, 1.0}, {1, 5.0}}});
/// \endcode
using ClassWeights = std::vector<std::pair<int, double>>;

namespace detail {

/// Whether a weight is a number on every device.
inline bool is_weight(double w) { return is_finite(static_cast<float>(w)); }

/// ClassWeights, ready to be looked up.
class ClassTable {
 public:
  /// \throws UsageError for a class below 0 or named twice, or a weight that is no finite number.
  explicit ClassTable(const ClassWeights& weights) : weights_(weights.size()) {
    std::size_t at = 0;
    for (const auto& [number, weight] : weights) {
      if (number < 0)
        throw UsageError("class_weight: class is {}; class numbers start at 0", number);
      if (!is_weight(weight))
        throw UsageError(
            "class_weight: class {} has weight {}; weights must be finite, typically near 1",
            number, weight);
      auto* place = &weights_[at++];
      for (; place != weights_.data() && place[-1].first >= number; --place) {
        if (place[-1].first == number)
          throw UsageError("class_weight: class {} has two weights; give one", number);
        *place = place[-1];
      }
      *place = {number, weight};
    }
  }
  /// By class.
  const ClassWeights& all() const { return weights_; }
  bool empty() const { return weights_.empty(); }

  /// Multiplies the weights of `count` examples by those of their classes. A target is a label, one
  /// number, which is rounded, or a row of `width` numbers, whose first largest is at the class.
  template <class Y, class T>
  void weigh(const Y* y, std::size_t width, std::size_t count, T* w) const {
    if (empty()) return;
    for (std::size_t i = 0; i < count; ++i) {
      const Y* const target = y + i * width;
      double number = 0;
      if (width > 1)
        number = static_cast<double>(std::max_element(target, target + width) - target);
      else
        number = std::nearbyint(static_cast<double>(target[0]));  // half to even, as numpy does
      w[i] *= static_cast<T>(of(number));
    }
  }

 private:
  double of(double number) const {
    const auto found = from(number);
    return found != weights_.end() && found->first == number ? found->second : 1;
  }

  /// The first class that is not below `number`.
  ClassWeights::const_iterator from(double number) const {
    return std::lower_bound(weights_.begin(), weights_.end(), number,
                            [](const auto& a, double b) { return a.first < b; });
  }

  ClassWeights weights_;  // by class
};

}  // namespace detail
}  // namespace lockstep
