/// \file
/// Class weights. Invariant: a class without an entry has weight 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep {

/// Keras' `class_weight`: pairs of a class number and the weight of its examples. If examples
/// have a target per position, such as a label per pixel, it is the weight of the positions of that
/// class; the loss is still divided by the number of positions.
/// \code
///   model.fit(train, {.epochs = 3, .class_weight = {{0, 1.0}, {1, 5.0}}});
/// \endcode
using ClassWeights = std::vector<std::pair<int, double>>;

namespace detail {

/// Whether a weight is finite on every device, that is, in float.
inline bool is_weight(double w) { return is_finite(static_cast<float>(w)); }

/// ClassWeights sorted by class, for binary search.
class ClassTable {
 public:
  /// \throws UsageError for a negative class, a class with two weights, or a weight that is not
  /// finite.
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
  /// All entries, sorted by class.
  const ClassWeights& all() const { return weights_; }
  bool empty() const { return weights_.empty(); }

  /// Multiplies the weights of `count` examples, or positions of examples, by those of their
  /// classes. A target of width 1 is a class label, rounded to an integer; a wider one is a row of
  /// scores or one-hot values, whose class is the first maximum.
  template <class Y, class T>
  void weigh(const Y* y, std::size_t width, std::size_t count, T* w) const {
    if (empty()) return;
    for (std::size_t i = 0; i < count; ++i) {
      const Y* const target = y + i * width;
      double number = 0;
      if (width > 1)
        number = static_cast<double>(std::max_element(target, target + width) - target);
      else
        number = std::nearbyint(static_cast<double>(target[0]));  // half to even, as in numpy
      w[i] *= static_cast<T>(of(number));
    }
  }

 private:
  /// Weight of a class; 1 without an entry.
  double of(double number) const {
    const auto found = from(number);
    return found != weights_.end() && found->first == number ? found->second : 1;
  }

  /// The first entry whose class is at least `number`.
  ClassWeights::const_iterator from(double number) const {
    return std::lower_bound(weights_.begin(), weights_.end(), number,
                            [](const auto& a, double b) { return a.first < b; });
  }

  ClassWeights weights_;  // sorted by class
};

}  // namespace detail
}  // namespace lockstep
