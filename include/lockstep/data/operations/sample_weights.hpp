/// \file
/// `sample_weights` assigns weights to each example. Invariants: weights belong to an example and
/// stay with it through all operations; unweighted data need no memory for weights.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/weight_shapes.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// The weights of a source, looked up by index.
template <class W>
class WeightTable {
 public:
  /// `values` are in the order of a pass of `source`, those of shape `each` for each example.
  /// \throws UsageError unless they are as many as the examples need, and finite.
  template <Dataset D>
  WeightTable(const D& source, std::vector<W> values, const Shape& each)
      : values_(std::move(values)), width_(each.size()) {
    for (int axis = 0; axis < each.rank; ++axis)
      if (each[axis] < 1)
        throw UsageError(
            "sample_weights: shape {} has an extent below 1; give that of the positions",
            to_string(each));
    const auto size = source.size();
    if (!size)
      throw UsageError("sample_weights: the pipeline is infinite; put take before sample_weights");
    if (values_.size() % width_ != 0 || values_.size() / width_ != *size) {
      if (each.rank == 0)
        throw UsageError("sample_weights: {} weights for {} examples; give one weight per example",
                         values_.size(), *size);
      throw UsageError("sample_weights: {} weights for {} examples; give {} for each, of shape {}",
                       values_.size(), *size, width_, to_string(each));
    }
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (!lockstep::detail::is_weight(static_cast<double>(values_[i])))
        throw UsageError(
            "sample_weights: example {} has weight {}; weights must be finite, typically near 1, "
            "and 0 for examples to ignore",
            i / width_, values_[i]);
    indices_.reserve(values_.size() / width_);
    auto stream = source.indices(Pass{});
    while (const auto index = stream.next()) indices_.push_back(*index);
    if (!std::is_sorted(indices_.begin(), indices_.end())) sort();
    const auto twice = std::adjacent_find(indices_.begin(), indices_.end());
    if (twice != indices_.end())
      throw UsageError(
          "sample_weights: example {} occurs more than once in a pass; put sample_weights before "
          "the operation that repeats it",
          *twice);
    if (!indices_.empty() && indices_.back() + 1 == indices_.size()) indices_ = {};
  }

  /// Weights of the example with this source index.
  std::span<const W> of(std::uint64_t index) const {
    if (indices_.empty() && index < values_.size() / width_)
      return row(static_cast<std::size_t>(index));
    const auto found = std::lower_bound(indices_.begin(), indices_.end(), index);
    if (found == indices_.end() || *found != index)
      throw UsageError(
          "sample_weights: example {} was not in the first pass; the source must yield the same "
          "examples in every pass",
          index);
    return row(static_cast<std::size_t>(found - indices_.begin()));
  }

 private:
  std::span<const W> row(std::size_t i) const {
    return std::span<const W>(values_).subspan(i * width_, width_);
  }
  /// Sorts both arrays by index.
  void sort() {
    std::vector<std::size_t> order(indices_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [this](std::size_t a, std::size_t b) { return indices_[a] < indices_[b]; });
    std::vector<W> values;
    values.reserve(values_.size());
    for (const std::size_t i : order) values.insert(values.end(), row(i).begin(), row(i).end());
    values_ = std::move(values);
    std::sort(indices_.begin(), indices_.end());
  }

  std::vector<std::uint64_t> indices_;  // of the values, ascending; empty if 0, 1, 2, ...
  std::vector<W> values_;
  std::size_t width_;  // weights of an example
};

/// `D` with weights of shape `each` for each example.
template <Dataset D, class W>
class SampleWeights : public Selection<D> {
 public:
  using Table = std::shared_ptr<const WeightTable<W>>;

  using fields = with_weight<typename D::fields>;

  SampleWeights(D source, Table table, const Shape& each)
      : Selection<D>(std::move(source)), table_(std::move(table)), each_(each) {
    if constexpr (has_weights<D>)
      each_ = common_weights("sample_weights", this->source().shape(weight), each);
  }

  Shape shape(std::size_t field = 0) const {
    return field == weight ? each_ : this->source().shape(field);
  }
  template <class T, std::same_as<T>... Scaling>
    requires Gathers<D, T, Scaling...>
  void gather(Pass pass, std::span<const Item> items, Rows<T, fields> to,
              Scaling... scaling) const {
    this->source().gather(pass, items, source_rows(to), scaling...);
    if (to.w() == nullptr) return;
    const std::size_t width = each_.size();
    if constexpr (has_weights<D>)
      lockstep::detail::repeat_weights(to.w(), items.size(),
                                       width / this->source().shape(weight).size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::span<const W> own = table_->of(items[i].index);
      for (std::size_t k = 0; k < width; ++k) {
        const T value = static_cast<T>(own[own.size() == 1 ? 0 : k]);
        T& w = to.w()[i * width + k];
        w = has_weights<D> ? w * value : value;
      }
    }
  }

 private:
  static constexpr std::size_t weight = fields::first(FieldRole::weight);
  template <class T>
  static RowsOf<D, T> source_rows(const Rows<T, fields>& to) {
    if constexpr (has_weights<D>)
      return to;
    else
      return to.template without<typename D::fields>(FieldRole::weight);
  }

  Table table_;
  Shape each_;
};

}  // namespace pipeline

/// Assigns a weight to each example, in the order of the data (Keras' `sample_weight`). The loss of
/// a batch is the sum of w l over its examples, divided by the number of examples, not by the sum
/// of weights. Metrics ignore weights, except `Weighted` ones. A weight may be negative. Weights
/// given more than once are multiplied.
///
/// An example with several targets, such as an image with a label per pixel, has one weight, which
/// applies to all of them, or weights of shape `each`: one for each position of the loss, in the
/// order of its targets. A position of weight 0 still counts in the mean; one of the loss' ignored
/// class does not. Operations on images, such as random_flip, move neither targets nor weights.
///
/// `values` are float or double. Put sample_weights before shuffle and repeat. It applies to the
/// training and validation data of `fit` and to `evaluate`. Class weights are the option
/// `class_weight` of `fit`.
/// \throws UsageError, when applied to a source, unless there is a finite weight for each example,
/// or for each position of each example.
/// \code
///   auto train = lockstep::tensors(x, lockstep::shape(8), y) | lockstep::sample_weights(w) |
///                lockstep::shuffle(1'000) | lockstep::batch(64);
///   auto masked = pixels | lockstep::sample_weights(mask, lockstep::shape(28, 28));
/// \endcode
template <class W = double>
auto sample_weights(std::vector<W> values, const Shape& each = {}) {
  static_assert(std::same_as<W, float> || std::same_as<W, double>,
                "lockstep::sample_weights: weights are float or double; convert them");
  return pipeline::operation_under_rescale<pipeline::Fault::reordered>(
      [given = std::move(values), each]<class D>(D source) {
        auto table = std::make_shared<const pipeline::WeightTable<W>>(source, given, each);
        return pipeline::SampleWeights<D, W>(std::move(source), std::move(table), each);
      },
      [](auto found) {
        static_assert(!found.batched, LOCKSTEP_BATCHED("sample_weights"));
        static_assert(
            !found.reordered,
            "lockstep::sample_weights: after a shuffle or repeat, weights cannot be matched to "
            "examples; put sample_weights before shuffle and repeat");
      });
}

}  // namespace lockstep
