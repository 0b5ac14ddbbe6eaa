/// \file
/// The interface of data pipelines. Invariants: the order of a pass is a pure function of (seed,
/// pass); an example's content is a pure function of (seed, pass, item); `gather` is const and may
/// be called from several threads at once.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/concepts/copyable.hpp"
#include "lockstep/concepts/fields.hpp"
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
/// - `fields`: the kinds of its fields, see Fields.
/// - `shape(field)`: shape of one example's value of a field, by default of the first (rank 0 for a
///   label or a weight).
/// - `size()`: number of examples in a pass; empty if a pass never ends.
/// - `indices(pass)`: an IndexStream over the pass.
/// - `gather(pass, items, to)`: writes the wanted fields of the items, row after row, for T float
///   and double. An example's weight depends only on the item's index.
/// \code
///   struct Squares {
///     using fields = ls::Labeled<float>;
///     ls::Shape shape(std::size_t = 0) const { return ls::shape(1); }
///     std::optional<std::uint64_t> size() const { return 100; }
///     ls::pipeline::Counter indices(ls::Pass) const { return ls::pipeline::Counter(100); }
///     template <class T>
///     void gather(ls::Pass, std::span<const ls::Item> items, ls::Rows<T, fields> to) const {
///       for (std::size_t i = 0; i < items.size(); ++i) {
///         const T x = static_cast<T>(items[i].index);
///         if (to.x()) to.x()[i] = x;
///         if (to.y()) to.y()[i] = x * x;
///       }
///     }
///   };
/// \endcode
template <class D>
concept Dataset = Copyable<D> && detail::is_fields<typename D::fields> &&
                  requires(const D& d, Pass pass, std::span<const Item> items, std::size_t field) {
                    { d.shape() } -> std::same_as<Shape>;
                    { d.shape(field) } -> std::same_as<Shape>;
                    { d.size() } -> std::same_as<std::optional<std::uint64_t>>;
                    { d.indices(pass) } -> IndexStream;
                    d.gather(pass, items, Rows<float, typename D::fields>());
                    d.gather(pass, items, Rows<double, typename D::fields>());
                  };

/// Whether a pipeline has sample weights; examples of others have weight 1.
template <Dataset D>
inline constexpr bool has_weights = D::fields::has(FieldRole::weight);

/// Whether an example has one feature, of real numbers.
template <Dataset D>
inline constexpr bool has_one_feature =
    D::fields::count(FieldRole::feature) == 1 && D::fields::kinds[0].type == FieldType::real;

/// The same, with one target, and perhaps a weight.
template <Dataset D>
inline constexpr bool is_labeled = has_one_feature<D> && D::fields::count(FieldRole::target) == 1 &&
                                   D::fields::count(FieldRole::weight) <= 1;

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

/// Destinations of a gather from `D` in T.
template <Dataset D, class T>
using RowsOf = Rows<T, typename D::fields>;

/// Type of the targets of `D` on a device that computes in T.
template <Dataset D, class T = float>
using target_of = typename RowsOf<D, T>::Y;

/// Position of the targets among the fields of `D`.
template <Dataset D>
inline constexpr std::size_t target_field = D::fields::first(FieldRole::target);

/// Position of the weights among the fields of `D`, if it has some.
template <Dataset D>
inline constexpr std::size_t weight_field = D::fields::first(FieldRole::weight);

/// The fields of a pipeline as values.
template <Dataset D>
std::array<Field, D::fields::size> fields_of(const D& data) {
  constexpr std::array<std::string_view, 3> names{"x", "y", "w"};
  std::array<Field, D::fields::size> result;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const FieldKind kind = D::fields::kinds[i];
    result[i] = {names[static_cast<std::size_t>(kind.role)], data.shape(i), kind.type, kind.role};
  }
  return result;
}

}  // namespace lockstep
