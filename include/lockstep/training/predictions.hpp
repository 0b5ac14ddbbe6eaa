/// \file
/// The return value of `predict`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/row_part.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/core/tensor_view.hpp"

namespace lockstep {

/// Outputs of a model, (examples, output), in the order of the data. Owns the values: rows and
/// views are valid while the object lives, so a temporary gives none.
/// With several outputs an example is the row of all of them; `p["digit"]` are those of one.
/// \code
///   auto p = model.predict(test);
///   std::span<const float> first = p.row(0);   // 10 logits
///   auto digits = p["digit"];                  // of a network with several outputs
/// \endcode
template <class T>
class Predictions {
 public:
  /// `outputs`: the parts of an example that have names; they live as long as the object.
  Predictions(std::vector<T> values, Shape example, std::span<const RowPart> outputs = {})
      : values_(std::move(values)), example_(example), outputs_(outputs) {}
  std::size_t count() const { return values_.size() / example_.size(); }
  const Shape& example_shape() const { return example_; }
  std::span<const T> row(std::size_t i) const& { return view().row(i); }
  std::span<const T> elements() const& { return values_; }
  TensorView<const T> view() const& { return {values_.data(), count(), example_}; }
  /// A copy of one output of all examples. \throws UsageError for an unknown name.
  [[gnu::cold]] Predictions operator[](std::string_view output) const {
    const auto at = std::find_if(outputs_.begin(), outputs_.end(),
                                 [&](const RowPart& port) { return port.name == output; });
    if (at == outputs_.end()) {
      std::string known;
      for (const RowPart& port : outputs_) add_item(known, ", ", std::string(port.name));
      throw UsageError("predictions: no output is named '{}'; {}{}", output,
                       known.empty() ? "the network names none" : "its outputs are ", known);
    }
    std::vector<T> values;
    values.reserve(count() * at->shape.size());
    for (std::size_t i = 0; i < count(); ++i) {
      const T* const first = values_.data() + i * example_.size() + at->offset;
      values.insert(values.end(), first, first + at->shape.size());
    }
    return {std::move(values), at->shape};
  }
  std::span<const T> row(std::size_t) const&& = delete;  // store it: auto p = model.predict(x)
  std::span<const T> elements() const&& = delete;        // store it: auto p = model.predict(x)
  TensorView<const T> view() const&& = delete;           // store it: auto p = model.predict(x)

 private:
  std::vector<T> values_;
  Shape example_;
  std::span<const RowPart> outputs_;
};

}  // namespace lockstep
