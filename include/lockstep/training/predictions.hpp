/// \file
/// The return value of `predict`.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/shape.hpp"
#include "lockstep/core/tensor_view.hpp"

namespace lockstep {

/// Outputs of a model, (examples, output), in the order of the data. Owns the values: rows and
/// views are valid while the object lives, so a temporary gives none.
/// \code
///   auto p = model.predict(test);
///   std::span<const float> first = p.row(0);   // 10 logits
/// \endcode
template <class T>
class Predictions {
 public:
  Predictions(std::vector<T> values, Shape example)
      : values_(std::move(values)), example_(example) {}
  std::size_t count() const { return values_.size() / example_.size(); }
  const Shape& example_shape() const { return example_; }
  std::span<const T> row(std::size_t i) const& { return view().row(i); }
  std::span<const T> elements() const& { return values_; }
  TensorView<const T> view() const& { return {values_.data(), count(), example_}; }
  std::span<const T> row(std::size_t) const&& = delete;  // store it: auto p = model.predict(x)
  std::span<const T> elements() const&& = delete;        // store it: auto p = model.predict(x)
  TensorView<const T> view() const&& = delete;           // store it: auto p = model.predict(x)

 private:
  std::vector<T> values_;
  Shape example_;
};

}  // namespace lockstep
