/// \file
/// `filter` keeps the examples for which a predicate is true. Invariants: examples are selected,
/// never changed; the predicate runs once per example when the pipeline is built, so the number of
/// examples is known and a worker can find its share without asking its peers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// A stored list of indices, the same in every pass.
using IndexList = std::shared_ptr<const std::vector<std::uint64_t>>;

/// The stream over an IndexList.
class ListStream {
 public:
  explicit ListStream(IndexList list) : list_(std::move(list)) {}
  std::optional<std::uint64_t> next() {
    if (at_ == list_->size()) return std::nullopt;
    return (*list_)[at_++];
  }
  void restart(Pass) { at_ = 0; }

 private:
  IndexList list_;
  std::size_t at_ = 0;
};

/// The examples of `D` whose indices are in a list, in its order.
template <Dataset D>
class Listed : public Selection<D> {
 public:
  Listed(D source, IndexList list) : Selection<D>(std::move(source)), list_(std::move(list)) {}
  std::optional<std::uint64_t> size() const { return list_->size(); }
  ListStream indices(Pass) const { return ListStream(list_); }

 private:
  IndexList list_;
};

/// The indices of `source` whose examples satisfy `keep`.
template <Dataset D, class Fn>
IndexList indices_where(const D& source, const Fn& keep) {
  static_assert(
      is_labeled<D>,
      "lockstep::filter: the data need examples of one real-valued feature and one target");
  using Target = target_of<D>;
  if (!source.size()) throw UsageError("filter: the pipeline is infinite; put take before filter");
  auto kept = std::make_shared<std::vector<std::uint64_t>>();
  std::vector<float> x(source.shape().size());
  std::vector<Target> y(source.shape(target_field<D>).size());
  auto stream = source.indices(Pass{});
  for (std::uint64_t ordinal = 0; const auto index = stream.next(); ++ordinal) {
    const Item item{*index, ordinal};
    source.gather(Pass{}, std::span<const Item>(&item, 1), RowsOf<D, float>(x.data(), y.data()));
    const Example<Target> example{x, y};
    if (keep(example)) kept->push_back(*index);
  }
  return kept;
}

}  // namespace pipeline

/// Keeps the examples for which `keep(example)` is true (tf.data's `filter`). `example.x` holds the
/// features as float, `example.y` the target.
///
/// The predicate runs here, once per example, and only the indices of the kept examples are stored:
/// workers must know the number of examples before the first step, so filtering cannot be deferred
/// to a pass. Put filter before shuffle, repeat and random maps.
/// \throws UsageError if the pipeline is infinite.
/// \code
///   auto ones_and_twos = digits.train() | lockstep::filter([](const auto& example) {
///     return example.y[0] == 1 || example.y[0] == 2;
///   });
/// \endcode
template <class Fn>
auto filter(Fn keep) {
  return pipeline::operation<pipeline::Fault::draws, pipeline::Fault::reordered>(
      [f = std::move(keep)]<class D>(D source) {
        using Given = const Example<target_of<D>>;
        constexpr bool fits = std::is_invocable_r_v<bool, const Fn&, Given&>;
        static_assert(
            fits,
            "lockstep::filter: the function must be callable as const with this pipeline's 'const "
            "Example<Target>&' and return bool; declare its parameter 'const auto& example'");
        if constexpr (fits) {
          const pipeline::IndexList kept = pipeline::indices_where(source, f);
          return pipeline::apply_under_rescale(std::move(source), [&](auto inner) {
            return pipeline::Listed<decltype(inner)>(std::move(inner), kept);
          });
        } else {
          return source;
        }
      },
      [](auto found) {
        static_assert(!found.batched, LOCKSTEP_BATCHED("filter"));
        static_assert(!found.draws,
                      "lockstep::filter: a random map before filter would change what it keeps "
                      "from pass to pass; put filter before map");
        static_assert(!found.reordered,
                      "lockstep::filter: a shuffle or repeat before filter hides the examples' "
                      "order; put filter before shuffle and repeat");
      });
}

}  // namespace lockstep
