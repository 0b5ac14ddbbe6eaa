/// \file
/// Shared parts of the image operations: in-place changes, and windows cut out of each image.
/// Invariants: an image is (height, width, channels); the work is done in the device's type while a
/// batch is gathered, so the data below stay bytes; a random operation counts as one of the random
/// maps of its pipeline.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/convert.hpp"
#include "lockstep/data/operations/example_draws.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/scratch.hpp"

namespace lockstep::pipeline {

/// \throws UsageError unless `shape` has height, width and channels.
inline void check_image(std::string_view operation, const Shape& shape) {
  if (shape.rank != 3)
    throw UsageError(
        "{}: examples have shape {}, not (height, width, channels); give the source that shape, "
        "with one channel for gray images",
        operation, to_string(shape));
}

/// An operation on images: its name, whether it draws random numbers, and `check`, which throws for
/// shapes that it does not accept.
template <class Change>
concept ImageChange = requires(const Change& change, const Shape& shape) {
  { Change::name } -> std::convertible_to<std::string_view>;
  { Change::random } -> std::convertible_to<bool>;
  change.check(shape);
};

/// `D` with `Change` applied to each image in place: `change(image, shape)`, or `change(image,
/// shape, draws)` for a random change.
template <Dataset D, class Change>
class ImageMap : public Mapped<ImageMap<D, Change>, D> {
  using Base = Mapped<ImageMap, D>;

 public:
  static constexpr bool in_memory = false;
  static constexpr std::size_t random_map_count = random_maps<D> + (Change::random ? 1 : 0);

  /// \throws UsageError if the examples are not images or `change` does not accept their shape.
  ImageMap(D source, Change change) : Base(std::move(source)), change_(change) {
    check_image(Change::name, this->shape());
    change_.check(this->shape());
  }

  template <class T>
  void gather(Pass pass, std::span<const Item> items, RowsOf<D, T> to) const {
    this->source().gather(pass, items, to);
    T* const x = to.x();
    if (x == nullptr) return;
    const Shape shape = this->shape();
    for (std::size_t i = 0; i < items.size(); ++i) {
      T* const image = x + i * shape.size();  // (height, width, channels)
      if constexpr (Change::random) {
        Philox draws = example_draws(pass, Change::name, random_maps<D>, items[i].ordinal);
        change_(image, shape, draws);
      } else {
        change_(image, shape);
      }
    }
  }
  RowChange<Change> change() const {
    return {change_, this->shape(), this->shape(), random_maps<D>};
  }
  const D& upstream() const { return this->source(); }

 private:
  Change change_;
};

/// The upper left corner of a window in image coordinates; negative values lie outside the image.
struct Corner {
  std::int64_t row = 0, column = 0;
};

/// out[r, c] = image[corner.row + r, corner.column + c], or `fill` outside the image.
template <class T>
void copy_window(const T* image, const Shape& in, Corner corner, T fill, T* out, const Shape& to) {
  const auto channels = static_cast<std::size_t>(in[2]);
  const std::size_t in_row = static_cast<std::size_t>(in[1]) * channels,
                    out_row = static_cast<std::size_t>(to[1]) * channels;
  // The columns [left, right) of the window overlap the image.
  const auto within = [&](std::int64_t column) {
    return static_cast<std::size_t>(std::clamp<std::int64_t>(column, 0, to[1])) * channels;
  };
  const std::size_t left = within(-corner.column),
                    right = std::max(left, within(in[1] - corner.column));
  for (int r = 0; r < to[0]; ++r, out += out_row) {
    const std::int64_t row = corner.row + r;
    if (row < 0 || row >= in[0] || left == right) {
      std::fill_n(out, out_row, fill);
      continue;
    }
    const std::int64_t first = std::max<std::int64_t>(corner.column, 0);
    const T* const from =
        image + static_cast<std::size_t>(row) * in_row + static_cast<std::size_t>(first) * channels;
    std::fill_n(out, left, fill);
    std::copy_n(from, right - left, out + left);
    std::fill(out + right, out + out_row, fill);
  }
}

/// `D` with each image replaced by a window of it. `Place` has `height`, `width`, `fill` and
/// `corner(shape)`, or `corner(shape, draws)` if it is random.
template <Dataset D, class Place>
class ImageWindow : public Mapped<ImageWindow<D, Place>, D> {
 public:
  static constexpr bool in_memory = false;
  static constexpr std::size_t random_map_count = random_maps<D> + (Place::random ? 1 : 0);

  /// \throws UsageError if the examples are not images or `place` does not fit them.
  ImageWindow(D source, Place place) : Mapped<ImageWindow, D>(std::move(source)), place_(place) {
    check_image(Place::name, this->source().shape());
    place_.check(this->source().shape());
  }
  Shape shape(std::size_t field = 0) const {
    if (field > 0) return this->source().shape(field);
    return lockstep::shape(place_.height, place_.width, this->source().shape()[2]);
  }

  template <class T>
  void gather(Pass pass, std::span<const Item> items, RowsOf<D, T> to) const {
    T* const x = to.x();
    if (x == nullptr) return this->source().gather(pass, items, to);
    constexpr std::size_t block = 8;  // images gathered at a time: few enough to stay in the cache
    const Shape in = this->source().shape(), out = shape();
    const T fill = static_cast<T>(place_.fill);
    const std::span<T> images = scratch<ImageWindow, 0, T>(block * in.size());
    for (std::size_t first = 0; first < items.size(); first += block) {
      const auto some = items.subspan(first, std::min(block, items.size() - first));
      RowsOf<D, T> from = to.after(first, *this);
      from[0] = images.data();
      this->source().gather(pass, some, from);
      for (std::size_t i = 0; i < some.size(); ++i)
        copy_window(images.data() + i * in.size(), in, corner(pass, some[i], in), fill,
                    x + (first + i) * out.size(), out);
    }
  }
  RowChange<Place> change() const {
    return {place_, this->source().shape(), shape(), random_maps<D>};
  }
  const D& upstream() const { return this->source(); }

 private:
  Corner corner(Pass pass, const Item& item, const Shape& in) const {
    if constexpr (Place::random) {
      Philox draws = example_draws(pass, Place::name, random_maps<D>, item.ordinal);
      return place_.corner(in, draws);
    } else {
      return place_.corner(in);
    }
  }

  Place place_;
};

/// A change that cuts a window, see ImageWindow.
template <class Change>
concept CutsWindow = ImageChange<Change> && requires(const Change& change) {
  change.height;
  change.width;
  change.fill;
};

/// Applies an ImageWindow or an ImageMap to any source of unbatched images. Not a template of those
/// two: g++ 12 evaluates a concept in a template template parameter once, and then has that answer
/// for all types.
template <ImageChange Change>
constexpr auto image_operation(Change change) {
  return operation(
      [change]<class D>(D source) {
        if constexpr (CutsWindow<Change>)
          return ImageWindow<D, Change>(std::move(source), change);
        else
          return ImageMap<D, Change>(std::move(source), change);
      },
      [](auto found) {
        static_assert(!found.batched,
                      "lockstep::ImageOperation: the pipeline is already batched; put image "
                      "operations before batch");
      });
}

}  // namespace lockstep::pipeline
