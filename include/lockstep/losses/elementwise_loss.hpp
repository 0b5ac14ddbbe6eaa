/// \file
/// Losses that are a mean over the elements of an example. Invariant: terms are computed in the
/// device's type and added in double, in the order of the elements.
#pragma once

#include <cstddef>

#include "lockstep/concepts/loss.hpp"

namespace lockstep {

/// The contribution of one element to a loss, and its derivative with respect to the prediction.
template <class T>
struct LossTerm {
  T value, slope;
};

/// One example of a loss that is the mean over k of rule(p[k], t[k]). `Rule` is an aggregate of
/// numbers with `template <class T> LossTerm<T> operator()(T p, T t) const`. A user-defined loss
/// consists of such a rule and a declaration: see mean_absolute_error.hpp.
template <class Rule>
struct ElementwiseLossOp {
  using target_type = float;
  std::size_t elements = 1;
  Rule rule{};
  std::size_t positions = 1;

  constexpr std::size_t rows() const { return positions; }
  constexpr ElementwiseLossOp row() const { return {elements / positions, rule, 1}; }
  constexpr std::size_t size() const { return elements; }
  constexpr std::size_t target_size() const { return elements; }

  template <class T>
  double example(const T* p, const T* t, T* g, double scale) const {
    const T share = static_cast<T>(scale / static_cast<double>(elements));
    double sum = 0;
    for (std::size_t k = 0; k < elements; ++k) {
      const LossTerm<T> term = rule(p[k], t[k]);
      sum += static_cast<double>(term.value);
      if (g != nullptr) g[k] = share * term.slope;
    }
    return sum / static_cast<double>(elements);
  }
  bool operator==(const ElementwiseLossOp&) const = default;
};

}  // namespace lockstep
