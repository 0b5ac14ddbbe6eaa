/// \file
/// `concatenate` appends one pipeline to another. Invariants: each example comes unchanged from one
/// of the two; its index records which, so examples can be gathered in any order.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/data/convert.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/scratch.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// The pass of the second of two pipelines. Its seed differs, so that two shuffles draw different
/// orders.
constexpr Pass pass_of_second(Pass pass) {
  return {mix(pass.seed, hash_name("second")), pass.number};
}

/// The first stream, then the second. Index i of the first becomes 2 i, index i of the second 2 i +
/// 1: the lowest bit tells the sources apart.
template <IndexStream First, IndexStream Second>
class Chain {
 public:
  Chain(First first, Second second) : first_(std::move(first)), second_(std::move(second)) {}
  std::optional<std::uint64_t> next() {
    if (!in_second_) {
      if (const auto index = first_.next()) return mark(*index, 0);
      in_second_ = true;
    }
    if (const auto index = second_.next()) return mark(*index, 1);
    return std::nullopt;
  }
  void restart(Pass pass)
    requires Restartable<First> && Restartable<Second>
  {
    first_.restart(pass);
    second_.restart(pass_of_second(pass));
    in_second_ = false;
  }

 private:
  static std::uint64_t mark(std::uint64_t index, std::uint64_t side) {
    if (index > std::numeric_limits<std::uint64_t>::max() / 2)
      throw UsageError(
          "concatenate: nested too deeply for 64-bit indices; concatenate pairs of pairs instead "
          "of one long chain");
    return index * 2 + side;
  }

  First first_;
  Second second_;
  bool in_second_ = false;
};

/// The examples of `A` followed by those of `B`.
template <Dataset A, Dataset B>
class Concatenate : public ExampleStage<A> {
  static constexpr bool weighted = has_weights<A> || has_weights<B>;

 public:
  using fields = std::conditional_t<weighted, with_weight<typename A::fields>, typename A::fields>;
  using element_type = std::common_type_t<typename ValueOf<A>::type, typename ValueOf<B>::type>;
  static constexpr bool in_memory = is_in_memory<A> && is_in_memory<B>;
  static constexpr std::size_t random_map_count = std::max(random_maps<A>, random_maps<B>);
  static constexpr bool reordered = is_reordered<A> || is_reordered<B>;
  static constexpr bool shuffled = is_shuffled<A> || is_shuffled<B>;
  static constexpr bool generated = is_generated<A> || is_generated<B>;

  /// \throws UsageError if the shapes differ or the first pipeline is infinite.
  Concatenate(A first, B second) : ExampleStage<A>(std::move(first)), second_(std::move(second)) {
    check("examples", this->shape(), second_.shape());
    check("targets", shape(target_field<A>), second_.shape(target_field<B>));
    if constexpr (has_weights<A> && has_weights<B>)
      check("weights", shape(weight), second_.shape(weight));
    if (!this->source().size())
      throw UsageError(
          "concatenate: the first pipeline is infinite, so the second would never be reached; put "
          "take before concatenate");
  }

  Shape shape(std::size_t field = 0) const {
    return field < A::fields::size ? this->source().shape(field) : second_.shape(field);
  }
  std::optional<std::uint64_t> size() const {
    const auto first = this->source().size(), second = second_.size();
    if (!second) return std::nullopt;
    return *first + *second;
  }
  auto indices(Pass pass) const {
    return Chain<StreamOf<A>, StreamOf<B>>(this->source().indices(pass),
                                           second_.indices(pass_of_second(pass)));
  }

  /// Examples of an unweighted side have weight 1.
  template <class T, std::same_as<T>... Scaling>
    requires(Gathers<A, T, Scaling...> && Gathers<B, T, Scaling...>)
  void gather(Pass pass, std::span<const Item> items, Rows<T, fields> to,
              Scaling... scaling) const {
    const std::span<Item> local = scratch<Concatenate, 0, Item>(items.size());
    for (std::size_t begin = 0, end = 0; begin < items.size(); begin = end) {
      const std::uint64_t side = items[begin].index % 2;
      for (; end < items.size() && items[end].index % 2 == side; ++end)
        local[end] = {items[end].index / 2, items[end].ordinal};
      const std::span<const Item> run = local.subspan(begin, end - begin);
      const auto gather_from = [&](const auto& source) {
        gather_run(source, pass, run, to.after(begin, *this), scaling...);
      };
      if (side == 0)
        gather_from(this->source());
      else
        gather_from(second_);
    }
  }

 private:
  static void check(const char* what, Shape first, Shape second) {
    if (first != second)
      throw UsageError(
          "concatenate: {} have shape {} in the first pipeline and {} in the second; make the "
          "shapes equal first",
          what, to_string(first), to_string(second));
  }

  template <class D, class T, class... Scaling>
  void gather_run(const D& source, Pass pass, std::span<const Item> run, Rows<T, fields> to,
                  Scaling... scaling) const {
    if constexpr (has_weights<D> || !weighted) {
      source.gather(pass, run, to, scaling...);
    } else {
      source.gather(pass, run, to.template without<typename D::fields>(FieldRole::weight),
                    scaling...);
      if (to.w() != nullptr) std::fill_n(to.w(), run.size() * shape(weight).size(), T(1));
    }
  }

  static constexpr std::size_t weight = fields::first(FieldRole::weight);

  B second_;
};

/// The result of `lockstep::concatenate`.
template <Dataset B>
struct ConcatenateOperation : Operation {
  explicit ConcatenateOperation(B b) : second(std::move(b)) {}
  B second;

  template <Dataset A>
  auto apply(A first) const {
    constexpr bool batched = BatchedDataset<A> || BatchedDataset<B>;
    constexpr bool alike =
        std::same_as<with_weight<typename A::fields>, with_weight<typename B::fields>>;
    static_assert(!batched,
                  "lockstep::concatenate: a pipeline is already batched; put batch after "
                  "concatenate");
    static_assert(
        batched || alike,
        "lockstep::concatenate: one pipeline has class labels, the other real-valued targets; use "
        "the same kind in both");
    if constexpr (batched || !alike)
      return first;
    else
      return Concatenate<A, B>(std::move(first), second);
  }
};

}  // namespace pipeline

/// Appends the examples of `second` to those of a pipeline (tf.data's `concatenate`). Examples and
/// targets must have the same shapes in both. A shuffle in either draws its own order. Examples of
/// an unweighted pipeline have weight 1.
/// \throws UsageError, when applied to a source, if shapes differ or the first pipeline is
/// infinite.
/// \code
///   auto all = digits.train() | lockstep::concatenate(digits.test()) | lockstep::batch(64);
/// \endcode
template <Dataset B>
pipeline::ConcatenateOperation<B> concatenate(B second) {
  return pipeline::ConcatenateOperation<B>(std::move(second));
}

}  // namespace lockstep
