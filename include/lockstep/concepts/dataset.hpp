/// \file
/// What a data pipeline is to the rest of lockstep. Invariants: the order of a pass is a pure
/// function of (seed, pass); an example's content is a pure function of (seed, pass, item);
/// `gather` is const and may be called from several threads at once.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "lockstep/concepts/copyable.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// One walk through a pipeline. `fit` counts passes as epochs; with `steps_per_epoch` one pass goes
/// on.
struct Pass {
  std::uint64_t seed = 1;
  std::uint64_t number = 0;
  bool operator==(const Pass&) const = default;
};

/// One example of a pass: where it comes from, and its place in the pass after shuffle and repeat
/// (the number that random maps, dropout and noise are keyed by).
struct Item {
  std::uint64_t index = 0;
  std::uint64_t ordinal = 0;
  bool operator==(const Item&) const = default;
};

/// Yields the source indices of one pass, in order; nothing at its end.
template <class S>
concept IndexStream = requires(S& s) {
  { s.next() } -> std::same_as<std::optional<std::uint64_t>>;
};

/// A pipeline of single examples.
///
/// - `target_type`: `std::int32_t` for class labels, `float` for real values.
/// - `shape()`, `target_shape()`: shapes of one example and of its target (`shape()` of rank 0 for
///   a label).
/// - `size()`: examples in a pass; nothing if a pass never ends.
/// - `indices(pass)`: the order of a pass.
/// - `gather<T>(pass, items, x, y)`: writes the examples, row after row, as T (float or double),
///   and their targets as std::int32_t or T.
template <class D>
concept Dataset = Copyable<D> && requires(const D& d, Pass pass, std::span<const Item> items,
                                          float* x, double* wide) {
  typename D::target_type;
  requires std::same_as<typename D::target_type, std::int32_t> ||
               std::same_as<typename D::target_type, float>;
  { d.shape() } -> std::same_as<Shape>;
  { d.target_shape() } -> std::same_as<Shape>;
  { d.size() } -> std::same_as<std::optional<std::uint64_t>>;
  { d.indices(pass) } -> IndexStream;
  d.gather(pass, items, x, static_cast<typename D::target_type*>(nullptr));
  d.gather(pass, items, wide,
           static_cast<std::conditional_t<std::same_as<typename D::target_type, float>, double,
                                          std::int32_t>*>(nullptr));
};

/// A pipeline whose examples have weights: `weigh(items, w)` multiplies each w by the weight of its
/// item, as T (float or double), which depends on the item's index alone. Without it all weigh 1.
template <class D>
concept WeightedDataset =
    Dataset<D> && requires(const D& d, std::span<const Item> items, float* w, double* wide) {
      d.weigh(items, w);
      d.weigh(items, wide);
    };

/// A pipeline that ends in `batch(n)` and perhaps `prefetch(k)`: what `fit`, `evaluate` and
/// `predict` take.
///
/// - `batch_size()`: the global batch; the last batch of a pass may be smaller.
/// - `prefetch_depth()`: batches that a thread of its own assembles ahead; 0: none, assembled when
///   asked for.
template <class D>
concept BatchedDataset = Dataset<D> && requires(const D& d) {
  { d.batch_size() } -> std::same_as<std::size_t>;
  { d.prefetch_depth() } -> std::same_as<std::size_t>;
};

/// Type in which the targets of `D` reach a device that computes in T.
template <Dataset D, class T>
using target_of = std::conditional_t<std::same_as<typename D::target_type, float>, T, std::int32_t>;

}  // namespace lockstep
