/// \file
/// Examples in memory. Invariants: numbers keep the type they came in and never change; copies
/// share them; `gather<double>` of doubles returns identical doubles.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/rows.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/convert.hpp"
#include "lockstep/data/pipe.hpp"

namespace lockstep {

/// A random-access source with features of type `Element` (std::uint8_t, float, double) and targets
/// of type `Target` (std::int32_t for class labels, float or double for real values).
///
/// Made by `tensors`. Owns its data; copies share them.
template <class Element, class Target>
class Tensors {
  static_assert(std::same_as<Element, std::uint8_t> || std::same_as<Element, float> ||
                    std::same_as<Element, double>,
                "lockstep::Tensors: features are std::uint8_t, float or double; convert them");
  static_assert(std::same_as<Target, std::int32_t> || std::same_as<Target, float> ||
                    std::same_as<Target, double>,
                "lockstep::Tensors: targets are std::int32_t (class labels), float or double (real "
                "values); convert them");

 public:
  using element_type = Element;
  using fields = Labeled<Target>;
  static constexpr bool in_memory = true;

  /// \throws UsageError if the sizes do not match the shapes or each other.
  [[gnu::cold]] Tensors(std::vector<Element> features, Shape shape, std::vector<Target> targets,
                        Shape target_shape)
      : shape_(shape), target_shape_(target_shape) {
    const std::size_t feature_count = examples("features", features.size(), shape);
    const std::size_t target_count = examples("targets", targets.size(), target_shape);
    if (feature_count != target_count)
      throw UsageError(
          "tensors: {} examples of shape {}, but {} targets of shape {}; give one target per "
          "example",
          feature_count, to_string(shape), target_count, to_string(target_shape));
    count_ = feature_count;
    data_.reset(new Data{std::move(features), std::move(targets)});
  }

  Shape shape(std::size_t field = 0) const { return field == 0 ? shape_ : target_shape_; }
  Shape target_shape() const { return target_shape_; }
  std::optional<std::uint64_t> size() const { return count_; }
  pipeline::Counter indices(Pass) const { return pipeline::Counter(count_); }

  std::span<const Element> features() const { return data_->features; }  ///< row by row
  std::span<const Target> targets() const { return data_->targets; }     ///< row by row
  KeptRows<Element, Target> kept_rows() const { return {features(), targets(), shape_}; }
  std::size_t row_of(std::uint64_t index) const { return static_cast<std::size_t>(index); }
  std::tuple<> changes() const { return {}; }

  /// x[i] = T(features of items[i]), or T(features) * scale + offset in one loop with `scaling`;
  /// y[i] = T(targets of items[i]).
  template <class T, std::same_as<T>... Scaling>
    requires(sizeof...(Scaling) == 0 || sizeof...(Scaling) == 2)
  void gather(Pass, std::span<const Item> items, Rows<T, fields> to, Scaling... scaling) const {
    if (to.x() != nullptr)
      each_row(items, [&](const Element* row, std::size_t i, std::size_t n) {
        detail::copy_row(row, to.x() + i * n, n, scaling...);
      });
    if (to.y() == nullptr) return;
    const std::size_t n = target_shape_.size();
    for (std::size_t i = 0; i < items.size(); ++i)
      detail::copy_row(data_->targets.data() + items[i].index * n, to.y() + i * n, n);
  }

 private:
  struct Data {
    std::vector<Element> features;
    std::vector<Target> targets;
  };

  /// The number of examples in `elements` numbers of `shape`.
  [[gnu::cold]] static std::size_t examples(const char* what, std::size_t elements,
                                            const Shape& shape) {
    for (int axis = 0; axis < shape.rank; ++axis)
      if (shape[axis] < 1)
        throw UsageError("tensors: {} have shape {}; every extent must be at least 1", what,
                         to_string(shape));
    // Divides axis by axis because the product of the extents may overflow.
    std::size_t whole = elements;
    bool fits = true;
    for (int axis = 0; axis < shape.rank; ++axis) {
      fits = fits && whole % static_cast<std::size_t>(shape[axis]) == 0;
      whole /= static_cast<std::size_t>(shape[axis]);
    }
    if (!fits)
      throw UsageError(
          "tensors: {} numbers of {} do not divide into examples of shape {}; check the shape",
          elements, what, to_string(shape));
    return whole;
  }

  /// Calls f(row, i, row size) for each item, and prefetches two rows ahead.
  template <class F>
  void each_row(std::span<const Item> items, F f) const {
    const std::size_t n = shape_.size(), ahead = 2;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i + ahead < items.size())
        detail::read_ahead(data_->features.data() + items[i + ahead].index * n, n);
      f(data_->features.data() + items[i].index * n, i, n);
    }
  }

  Shape shape_, target_shape_;
  std::size_t count_ = 0;
  std::shared_ptr<const Data> data_;
};

/// Makes a Dataset of examples that are already in memory (tf.data's `from_tensor_slices`).
///
/// `features` holds examples of `shape`, row after row; `targets` holds one target of
/// `target_shape` per example, by default one number.
/// \throws UsageError if the sizes do not match the shapes or each other.
/// \code
///   // three points of a line
///   auto line = lockstep::tensors(std::vector{0.f, 1.f, 2.f}, lockstep::shape(1),
///                                 std::vector{1.f, 3.f, 5.f}, lockstep::shape(1));
/// \endcode
template <class Element, class Target>
Tensors<Element, Target> tensors(std::vector<Element> features, Shape shape,
                                 std::vector<Target> targets, Shape target_shape = {}) {
  return {std::move(features), shape, std::move(targets), target_shape};
}

}  // namespace lockstep
