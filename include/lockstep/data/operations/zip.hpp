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
#include "lockstep/data/operations/weight_shapes.hpp"
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

/// The fields of F that have this role, followed by those of `Rest`.
template <FieldRole role, class F, class Rest>
struct FieldsWith {
  using type = Rest;
};
template <FieldRole role, FieldKind first, FieldKind... more, FieldKind... rest>
struct FieldsWith<role, Fields<first, more...>, Fields<rest...>> {
  using after = typename FieldsWith<role, Fields<more...>, Fields<rest...>>::type;
  template <FieldKind... Kinds>
  static constexpr auto put_first(Fields<Kinds...>) {
    if constexpr (first.role == role)
      return Fields<first, Kinds...>();
    else
      return Fields<Kinds...>();
  }
  using type = decltype(put_first(after()));
};

/// The features of F, the targets of G, and a weight if F or G has one.
template <class F, class G>
using ZippedFields = typename FieldsWith<
    FieldRole::feature, F,
    typename FieldsWith<
        FieldRole::target, G,
        typename FieldsWith<FieldRole::weight, std::conditional_t<F::has(FieldRole::weight), F, G>,
                            Fields<>>::type>::type>::type;

/// The features of `A` with the targets of `B`.
template <Dataset A, Dataset B>
class Zip {
  static_assert(is_labeled<A> && is_labeled<B>,
                "lockstep::zip: both pipelines need examples of one real-valued feature and one "
                "target; put zip before the operation that adds fields");

 public:
  using fields = ZippedFields<typename A::fields, typename B::fields>;
  using element_type = typename ValueOf<A>::type;
  static constexpr std::size_t random_map_count = std::max(random_maps<A>, random_maps<B>);
  static constexpr bool reordered = is_reordered<A> || is_reordered<B>;
  static constexpr bool shuffled = is_shuffled<A> || is_shuffled<B>;
  static constexpr bool generated = is_generated<A> || is_generated<B>;
  static constexpr bool in_memory = is_in_memory<A> && is_in_memory<B>;

  /// \throws UsageError if both pipelines have weights for positions of different shapes.
  Zip(A features, B targets) : features_(std::move(features)), targets_(std::move(targets)) {
    if constexpr (has_weights<A> && has_weights<B>)
      weights_ = common_weights("zip", weights_of(features_), weights_of(targets_));
    else if constexpr (has_weights<A>)
      weights_ = weights_of(features_);
    else if constexpr (has_weights<B>)
      weights_ = weights_of(targets_);
  }

  Shape shape(std::size_t field = 0) const {
    constexpr std::size_t features = fields::count(FieldRole::feature);
    if (field >= features + fields::count(FieldRole::target)) return weights_;
    return field < features ? features_.shape(field)
                            : targets_.shape(field - features + target_field<B>);
  }
  /// The smaller of both sizes; an infinite side does not count.
  std::optional<std::uint64_t> size() const {
    const auto a = features_.size(), b = targets_.size();
    return a && b ? std::min(*a, *b) : a ? a : b;
  }
  auto indices(Pass pass) const {
    return Pairs<StreamOf<A>, StreamOf<B>>(features_.indices(pass),
                                           targets_.indices(pass_of_second(pass)));
  }

  /// The weights of both sides are multiplied.
  template <class T>
  void gather(Pass pass, std::span<const Item> items, Rows<T, fields> to) const {
    constexpr std::size_t chunk = 64;  // bounds the scratch
    const auto local = scratch<Zip, 0, Item>(chunk);
    const auto other_w = scratch<Zip, 1, T>(chunk * weights_.size());
    for (std::size_t first = 0; first < items.size(); first += chunk) {
      const auto part = items.subspan(first, std::min(chunk, items.size() - first));
      const auto run = local.first(part.size());
      const Rows<T, fields> here = to.after(first, *this);
      RowsOf<A, T> to_a;
      RowsOf<B, T> to_b;
      for (std::size_t i = 0; i < fields::size; ++i)
        if (fields::kinds[i].role == FieldRole::feature)
          to_a[i] = here[i];
        else if (fields::kinds[i].role == FieldRole::target)
          to_b[i - fields::first(FieldRole::target) + target_field<B>] = here[i];
      if constexpr (has_weights<A>) to_a[weight_field<A>] = here.w();
      if constexpr (has_weights<B>)
        to_b[weight_field<B>] = has_weights<A> && here.w() != nullptr ? other_w.data() : here.w();
      std::transform(part.begin(), part.end(), run.begin(),
                     [](Item item) { return Item{item.index >> 32, item.ordinal}; });
      features_.gather(pass, std::span<const Item>(run), to_a);
      std::transform(part.begin(), part.end(), run.begin(),
                     [](Item item) { return Item{item.index & 0xffffffffu, item.ordinal}; });
      targets_.gather(pass, std::span<const Item>(run), to_b);
      if constexpr (has_weights<A> && has_weights<B>)
        if (here.w() != nullptr) {
          const std::size_t width = weights_.size();
          lockstep::detail::repeat_weights(here.w(), part.size(),
                                           width / weights_of(features_).size());
          lockstep::detail::repeat_weights(other_w.data(), part.size(),
                                           width / weights_of(targets_).size());
          for (std::size_t i = 0; i < part.size() * width; ++i) here.w()[i] *= other_w[i];
        }
    }
  }

 private:
  template <class D>
  static Shape weights_of(const D& source) {
    return source.shape(weight_field<D>);
  }

  A features_;
  B targets_;
  Shape weights_;  // of an example
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
