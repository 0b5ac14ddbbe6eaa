/// \file
/// `window` joins consecutive examples into one, `unbatch` splits an example into its rows.
/// Invariants: every window is full, and all passes have the same windows; the numbers of a row
/// never change.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/convert.hpp"
#include "lockstep/data/operations/filter.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/scratch.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

/// The spacing of windows, with tf.data's names.
struct WindowOptions {
  std::uint64_t shift = 0;   ///< distance between the starts of windows; 0: the window's size
  std::uint64_t stride = 1;  ///< distance between the examples of a window
};

namespace pipeline {

/// `shape` with a leading axis of `extent`.
inline Shape stacked(const Shape& shape, std::uint64_t extent) {
  if (shape.rank == 4)
    throw UsageError(
        "window: examples or targets of shape {} already have the maximum of four axes; flatten "
        "them first",
        to_string(shape));
  Shape result{shape.rank + 1, {static_cast<int>(extent), 1, 1, 1, 1}};
  for (int axis = 0; axis < shape.rank; ++axis)
    result.extent[static_cast<std::size_t>(axis) + 1] = shape[axis];
  return result;
}

/// `shape` without its first axis.
inline Shape unstacked(const Shape& shape, const char* what) {
  if (shape.rank == 0)
    throw UsageError(
        "unbatch: the {} have shape () and no axis to split; features and targets need the same "
        "first axis",
        what);
  Shape result{shape.rank - 1, {1, 1, 1, 1, 1}};
  for (int axis = 1; axis < shape.rank; ++axis)
    result.extent[static_cast<std::size_t>(axis) - 1] = shape[axis];
  return result;
}

/// The windows of `D`: window w holds the examples at positions w * shift + k * stride for k in
/// [0, size).
template <Dataset D>
class Window : public ExampleStage<D> {
 public:
  /// \throws UsageError if size or stride are out of range or the pipeline is infinite.
  Window(D source, std::uint64_t size, WindowOptions options)
      : ExampleStage<D>(std::move(source)), length_(size), options_(options) {
    detail::check_count("window: shift", options.shift, 0);
    detail::check_count("window: stride", options.stride);
    if (size < 1 || size > std::uint64_t{std::numeric_limits<int>::max()} ||
        options.stride > std::numeric_limits<std::uint32_t>::max())
      throw UsageError(
          "window({}) with stride {}: out of range; the size must be 1 to 2147483647 and the "
          "stride 1 to 4294967295",
          size, options.stride);
    if (options_.shift == 0) options_.shift = size;
    for (std::size_t field = 0; field < shapes_.size(); ++field)
      shapes_[field] = stacked(this->source().shape(field), size);
    if (!this->source().size())
      throw UsageError("window: the pipeline is infinite; put take before window");
    auto places = std::make_shared<std::vector<std::uint64_t>>();
    auto stream = this->source().indices(Pass{});
    while (const auto index = stream.next()) places->push_back(*index);
    places_ = std::move(places);
    const std::uint64_t span = (size - 1) * options_.stride + 1, count = places_->size();
    windows_ = count < span ? 0 : (count - span) / options_.shift + 1;
  }

  Shape shape(std::size_t field = 0) const { return shapes_[field]; }
  std::optional<std::uint64_t> size() const { return windows_; }
  Counter indices(Pass) const { return Counter(windows_); }

  /// Gathers the members of each window. Random maps below draw separately for each window.
  template <class T, std::same_as<T>... Scaling>
    requires Gathers<D, T, Scaling...>
  void gather(Pass pass, std::span<const Item> items, RowsOf<D, T> to, Scaling... scaling) const {
    const std::size_t length = static_cast<std::size_t>(length_);
    const std::span<Item> members = scratch<Window, 0, Item>(length);
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (std::size_t k = 0; k < length; ++k)
        members[k] = {(*places_)[static_cast<std::size_t>(items[i].index * options_.shift +
                                                          k * options_.stride)],
                      items[i].ordinal * length_ + k};
      this->source().gather(pass, std::span<const Item>(members.first(length)), to.after(i, *this),
                            scaling...);
    }
  }

 private:
  std::uint64_t length_, windows_ = 0;
  WindowOptions options_;
  std::array<Shape, D::fields::size> shapes_;
  IndexList places_;
};

/// The rows of the examples of `D`. Row r of example i has index i * rows + r.
template <Dataset D>
class Unbatch : public ExampleStage<D> {
  static constexpr std::size_t target = target_field<D>;

 public:
  /// \throws UsageError unless features and targets have the same first axis.
  explicit Unbatch(D source)
      : ExampleStage<D>(std::move(source)),
        shape_(unstacked(this->source().shape(), "features")),
        target_shape_(unstacked(this->source().shape(target), "targets")),
        rows_(static_cast<std::uint64_t>(this->source().shape()[0])) {
    if (this->source().shape()[0] != this->source().shape(target)[0])
      throw UsageError(
          "unbatch: features of shape {} and targets of shape {} differ in the first axis; make it "
          "equal",
          to_string(this->source().shape()), to_string(this->source().shape(target)));
    if constexpr (has_weights<D>)
      if (const Shape all = this->source().shape(weight_field<D>); all.rank > 0) {
        if (all[0] != this->source().shape()[0])
          throw UsageError(
              "unbatch: features of shape {} and weights of shape {} differ in the first axis; "
              "make it equal",
              to_string(this->source().shape()), to_string(all));
        weight_shape_ = unstacked(all, "weights");
      }
  }

  Shape shape(std::size_t field = 0) const {
    return field == 0 ? shape_ : field == target ? target_shape_ : weight_shape_;
  }
  std::optional<std::uint64_t> size() const {
    const auto whole = this->source().size();
    if (!whole) return std::nullopt;
    return *whole * rows_;
  }

  /// The stream of rows: each source index expands to `rows` consecutive indices.
  class RowStream {
   public:
    RowStream(StreamOf<D> source, std::uint64_t rows) : source_(std::move(source)), rows_(rows) {}
    std::optional<std::uint64_t> next() {
      if (row_ == 0) {
        whole_ = source_.next();
        if (whole_ && *whole_ > std::numeric_limits<std::uint64_t>::max() / rows_ - 1)
          throw UsageError(
              "unbatch: row indices overflow 64 bits; unbatch before concatenate and zip");
      }
      if (!whole_) return std::nullopt;
      const std::uint64_t index = *whole_ * rows_ + row_;
      row_ = (row_ + 1) % rows_;
      return index;
    }
    void restart(Pass pass)
      requires Restartable<StreamOf<D>>
    {
      source_.restart(pass);
      row_ = 0;
    }

   private:
    StreamOf<D> source_;
    std::uint64_t rows_, row_ = 0;
    std::optional<std::uint64_t> whole_;
  };
  RowStream indices(Pass pass) const { return RowStream(this->source().indices(pass), rows_); }

  /// A row has the weight of its example, or its own if the example has weights by position.
  template <class T>
  void gather(Pass pass, std::span<const Item> items, RowsOf<D, T> to) const {
    using Y = target_of<D, T>;
    const std::size_t n = shape_.size(), m = target_shape_.size();
    const std::span<T> whole_x = scratch<Unbatch, 0, T>(this->source().shape().size());
    const std::span<Y> whole_y = scratch<Unbatch, 1, Y>(this->source().shape(target).size());
    const std::span<T> whole_w = scratch<Unbatch, 2, T>(whole_weights());
    const bool is_own = whole_weights() > weight_shape_.size();  // else one for all rows
    const std::size_t k = weight_shape_.size();
    const RowsOf<D, T> whole_example(to.x() != nullptr ? whole_x.data() : nullptr,
                                     to.y() != nullptr ? whole_y.data() : nullptr,
                                     to.w() != nullptr ? whole_w.data() : nullptr);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Item whole{items[i].index / rows_, items[i].ordinal};
      // Consecutive rows of an example share one gather.
      if (i == 0 || whole.index != items[i - 1].index / rows_)
        this->source().gather(pass, std::span<const Item>(&whole, 1), whole_example);
      const auto row = static_cast<std::size_t>(items[i].index % rows_);
      if (to.x() != nullptr) std::copy_n(whole_x.data() + row * n, n, to.x() + i * n);
      if (to.y() != nullptr) std::copy_n(whole_y.data() + row * m, m, to.y() + i * m);
      if (to.w() != nullptr)
        std::copy_n(whole_w.data() + (is_own ? row * k : 0), k, to.w() + i * k);
    }
  }

 private:
  std::size_t whole_weights() const {
    if constexpr (has_weights<D>)
      return this->source().shape(weight_field<D>).size();
    else
      return 1;
  }

  Shape shape_, target_shape_, weight_shape_;
  std::uint64_t rows_;
};

}  // namespace pipeline

/// Joins each window of `size` consecutive examples into one example, whose features and targets
/// are stacked along a new first axis (tf.data's `window(size, shift, stride, drop_remainder=True)`
/// with each window batched). A final window that is not full is dropped, since all examples have
/// the same shape.
/// \throws UsageError, when applied to a source, if the pipeline is infinite, the examples already
/// have four axes, or `size` or `stride` is out of range.
/// \code
///   auto hours = signal | lockstep::window(24, {.shift = 1});   // (24, ...) for each hour
/// \endcode
inline auto window(Count size, WindowOptions options = {}) {
  const std::uint64_t n =
      size.checked("window", "a window needs at least one example; give a size of at least 1");
  return pipeline::operation_under_rescale<pipeline::Fault::reordered>(
      [n, options]<class D>(D source) {
        static_assert(
            !has_weights<D>,
            "lockstep::window: a window has a single weight, but its examples have one each; put "
            "sample_weights after window");
        if constexpr (has_weights<D>)
          return source;
        else
          return pipeline::Window<D>(std::move(source), n, options);
      },
      [](auto found) {
        static_assert(!found.batched, LOCKSTEP_BATCHED("window"));
        static_assert(!found.reordered,
                      "lockstep::window: a shuffle or repeat before window would separate "
                      "consecutive examples; put window before shuffle and repeat");
      });
}

/// Splits each example along the first axis of its features and targets (tf.data's `unbatch`): an
/// example of shape (4, 8) with a target of shape (4) becomes four examples of shape (8), each with
/// the example's weight.
/// \throws UsageError, when applied to a source, if features and targets do not share their first
/// axis.
/// \code
///   auto rows = bags | lockstep::unbatch;
/// \endcode
inline constexpr auto unbatch = pipeline::operation_under_rescale<pipeline::Fault::draws>(
    []<class D>(D source) { return pipeline::Unbatch<D>(std::move(source)); },
    [](auto found) {
      static_assert(
          !found.batched,
          "lockstep::unbatch: batches are only assembled when a model reads them, so there is "
          "nothing to undo; remove batch");
      static_assert(
          !found.draws,
          "lockstep::unbatch: a random map before unbatch would draw again for each row; put "
          "unbatch before map");
    });

}  // namespace lockstep
