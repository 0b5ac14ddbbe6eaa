/// \file
/// `zip` combines two pipelines in parallel. Invariants: example i has the features of example i of
/// the first and the targets of example i of the second; its index packs both source indices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/convert.hpp"
#include "lockstep/data/operations/concatenate.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/scratch.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// Pairs of two streams: indices a and b become a * 2^32 + b. Ends with the shorter stream.
template <IndexStream First, IndexStream Second>
class Pairs {
 public:
  Pairs(First first, Second second) : first_(std::move(first)), second_(std::move(second)) {}
  std::optional<std::uint64_t> next() {
    const auto a = first_.next();
    if (!a) return std::nullopt;
    const auto b = second_.next();
    if (!b) return std::nullopt;
    if ((*a | *b) >> 32 != 0)
      throw UsageError(
          "zip: an index exceeds the 4294967295 of a 32-bit index; zip before concatenate, window "
          "and unbatch, or use fewer examples");
    return *a << 32 | *b;
  }
  void restart(Pass pass)
    requires Restartable<First> && Restartable<Second>
  {
    first_.restart(pass);
    second_.restart(pass_of_second(pass));
  }

 private:
  First first_;
  Second second_;
};

/// The features of `A` with the targets of `B`.
template <Dataset A, Dataset B>
class Zip {
 public:
  using target_type = typename B::target_type;
  using element_type = typename ValueOf<A>::type;
  static constexpr std::size_t random_map_count = std::max(random_maps<A>, random_maps<B>);
  static constexpr bool reordered = is_reordered<A> || is_reordered<B>;
  static constexpr bool shuffled = is_shuffled<A> || is_shuffled<B>;
  static constexpr bool generated = is_generated<A> || is_generated<B>;
  static constexpr bool in_memory = is_in_memory<A> && is_in_memory<B>;

  Zip(A features, B targets) : features_(std::move(features)), targets_(std::move(targets)) {}

  Shape shape() const { return features_.shape(); }
  Shape target_shape() const { return targets_.target_shape(); }
  /// The smaller of both sizes; an infinite side does not count.
  std::optional<std::uint64_t> size() const {
    const auto a = features_.size(), b = targets_.size();
    return a && b ? std::min(*a, *b) : a ? a : b;
  }
  auto indices(Pass pass) const {
    return Pairs<StreamOf<A>, StreamOf<B>>(features_.indices(pass),
                                           targets_.indices(pass_of_second(pass)));
  }

  template <class T>
  void gather(Pass pass, std::span<const Item> items, T* x,
              detail::target_in<target_type, T>* y) const {
    using Unused = detail::target_in<typename A::target_type, T>;
    constexpr std::size_t chunk = 64;  // bounds the scratch for the unused halves
    const std::size_t n = shape().size(), m = target_shape().size();
    const auto local = scratch<Zip, 0, Item>(chunk);
    const auto other_y = scratch<Zip, 1, Unused>(chunk * features_.target_shape().size());
    const auto other_x = scratch<Zip, 2, T>(chunk * targets_.shape().size());
    for (std::size_t first = 0; first < items.size(); first += chunk) {
      const auto part = items.subspan(first, std::min(chunk, items.size() - first));
      const auto run = local.first(part.size());
      std::transform(part.begin(), part.end(), run.begin(),
                     [](Item item) { return Item{item.index >> 32, item.ordinal}; });
      features_.gather(pass, std::span<const Item>(run), x + first * n, other_y.data());
      std::transform(part.begin(), part.end(), run.begin(),
                     [](Item item) { return Item{item.index & 0xffffffffu, item.ordinal}; });
      targets_.gather(pass, std::span<const Item>(run), other_x.data(), y + first * m);
    }
  }
  /// The weights of both sides, multiplied.
  template <class T>
    requires(WeightedDataset<A> || WeightedDataset<B>)  //
  void weigh(std::span<const Item> items, T* w) const {
    for (std::size_t i = 0; i < items.size(); ++i) {
      weigh_one(features_, {items[i].index >> 32, items[i].ordinal}, w + i);
      weigh_one(targets_, {items[i].index & 0xffffffffu, items[i].ordinal}, w + i);
    }
  }

 private:
  A features_;
  B targets_;
};

}  // namespace pipeline

/// Combines the features of one pipeline with the targets of another, up to the length of the
/// shorter (tf.data's `zip((features, targets))`, where each has one component; here each has both,
/// and the targets of the first and the features of the second are dropped).
///
/// Each side keeps its own order, so shuffle after zip. Random maps at the same position of both
/// sides draw the same numbers for an example. Weights of both sides are multiplied.
/// \throws UsageError during a pass, if an index exceeds 2^32 - 1.
/// \code
///   auto denoise = lockstep::zip(images | lockstep::map(noise), teacher) | lockstep::batch(64);
/// \endcode
template <Dataset A, Dataset B>
auto zip(A features, B targets) {
  constexpr bool batched = BatchedDataset<A> || BatchedDataset<B>;
  static_assert(!batched, "lockstep::zip: a pipeline is already batched; put batch after zip");
  if constexpr (batched)
    return features;
  else
    return pipeline::Zip<A, B>(std::move(features), std::move(targets));
}

}  // namespace lockstep
