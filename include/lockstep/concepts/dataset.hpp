/// \file
/// The interface of data pipelines. Invariants: the order of a pass is a pure function of (seed,
/// pass); an example's content is a pure function of (seed, pass, item); `gather` is const and may
/// be called from several threads at once.
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

/// One iteration over a pipeline. `fit` uses the epoch as the number of the pass; with
/// `steps_per_epoch` a pass continues over several epochs.
struct Pass {
  std::uint64_t seed = 1;
  std::uint64_t number = 0;
  bool operator==(const Pass&) const = default;
};

/// One example of a pass: its index in the source, and its position in the pass after shuffle and
/// repeat. The position (ordinal) keys the draws of random maps, dropout and noise.
struct Item {
  std::uint64_t index = 0;
  std::uint64_t ordinal = 0;
  bool operator==(const Item&) const = default;
};

/// Yields the source indices of one pass in order, then nullopt.
template <class S>
concept IndexStream = requires(S& s) {
  { s.next() } -> std::same_as<std::optional<std::uint64_t>>;
};

/// A pipeline of single examples.
///
/// - `target_type`: `std::int32_t` for class labels, `float` for real values.
/// - `shape()`, `target_shape()`: shapes of one example and of its target (`target_shape()` has
///   rank 0 for a label).
/// - `size()`: number of examples in a pass; empty if a pass never ends.
/// - `indices(pass)`: an IndexStream over the pass.
/// - `gather<T>(pass, items, x, y)`: writes examples, row after row, as T (float or double), and
///   their targets as std::int32_t or T.
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

/// A pipeline with sample weights: `weigh(items, w)` multiplies each w by the weight of its item,
/// as T (float or double). A weight depends only on the item's index. Pipelines without this member
/// have weights of 1.
template <class D>
concept WeightedDataset =
    Dataset<D> && requires(const D& d, std::span<const Item> items, float* w, double* wide) {
      d.weigh(items, w);
      d.weigh(items, wide);
    };

/// A pipeline that ends in `batch(n)` and optionally `prefetch(k)`: the argument of `fit`,
/// `evaluate` and `predict`.
///
/// - `batch_size()`: examples in the global batch; the last batch of a pass may be smaller.
/// - `prefetch_depth()`: batches that a separate thread assembles ahead; 0: batches are assembled
///   on demand.
template <class D>
concept BatchedDataset = Dataset<D> && requires(const D& d) {
  { d.batch_size() } -> std::same_as<std::size_t>;
  { d.prefetch_depth() } -> std::same_as<std::size_t>;
};

/// Type of the targets of `D` on a device that computes in T.
template <Dataset D, class T>
using target_of = std::conditional_t<std::same_as<typename D::target_type, float>, T, std::int32_t>;

}  // namespace lockstep
