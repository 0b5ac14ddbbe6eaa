/// \file
/// `validation_split` uses the last part of the training data for validation.
///
///     source | cache | shuffle | batch              training data as given
///     source | cache | take(k) | shuffle | batch    training
///     source | cache | skip(k) | batch              validation
///
/// Invariants: the split is below shuffle and repeat, so no example is in both parts, in any epoch;
/// a cache below the split serves both.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/features_as_targets.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// Whether the examples of `D` have a fixed order, so that its last ones are well defined.
template <class D>
inline constexpr bool is_in_order = Dataset<D> && !BatchedDataset<D> && !is_reordered<D>;

/// Rebuilds a pipeline with its in-order part p replaced by f(p). `kept`: whether to keep shuffle
/// and repeat. The primary template is for stages that cannot be above a split.
template <class D>
struct Rebuild {
  static constexpr bool possible = is_in_order<D>;
  template <bool kept, class F>
  static auto over(const D& d, F f) {
    return f(d);
  }
};

/// Rebuilds a stage above the split: `Recreate::of(stage, inner)` is the same stage over `inner`.
template <class D, class Source, class Recreate>
struct RebuildStage {
  static constexpr bool possible = is_in_order<D> || Rebuild<Source>::possible;
  template <bool kept, class F>
  static auto over(const D& d, F f) {
    if constexpr (is_in_order<D>)
      return f(d);
    else
      return Recreate::template of<kept>(d, Rebuild<Source>::template over<kept>(d.upstream(), f));
  }
};

/// One policy per stage that may be above a split.
struct RecreateShuffle {
  template <bool kept, class D, Dataset Inner>
  static auto of(const D& d, Inner inner) {
    if constexpr (kept)
      return Shuffle<Inner>(std::move(inner), d.buffer());
    else
      return inner;
  }
};
struct RecreateRepeat {
  template <bool kept, class D, Dataset Inner>
  static auto of(const D& d, Inner inner) {
    if constexpr (kept)
      return Repeat<Inner>(std::move(inner), d.times());
    else
      return inner;
  }
};
struct RecreateRescale {
  template <bool, class D, Dataset Inner>
  static auto of(const D& d, Inner inner) {
    return Rescale<Inner>(std::move(inner), d.scale(), d.offset());
  }
};
template <class Fn>
struct RecreateMap {
  template <bool, class D, Dataset Inner>
  static auto of(const D& d, Inner inner) {
    return Map<Inner, Fn>(std::move(inner), d.function());
  }
};
template <Shape To, class Fn>
struct RecreateShapeMap {
  template <bool, class D, Dataset Inner>
  static auto of(const D& d, Inner inner) {
    return ShapeMap<To, Inner, Fn>(std::move(inner), d.function());
  }
};
struct RecreateFeaturesAsTargets {
  template <bool, class D, Dataset Inner>
  static auto of(const D&, Inner inner) {
    return FeaturesAsTargets<Inner>(std::move(inner));
  }
};
struct RecreateBatch {
  template <bool kept, class D, Dataset Inner>
  static auto of(const D& d, Inner inner) {
    return Batch<Inner>(std::move(inner), d.batch_size(), kept ? d.remainder() : Remainder::keep);
  }
};
struct RecreatePrefetch {
  template <bool, class D, Dataset Inner>
  static auto of(const D& d, Inner inner) {
    return Prefetch<Inner>(std::move(inner), d.prefetch_depth());
  }
};
template <class D>
struct Rebuild<Shuffle<D>> : RebuildStage<Shuffle<D>, D, RecreateShuffle> {};
template <class D>
struct Rebuild<Repeat<D>> : RebuildStage<Repeat<D>, D, RecreateRepeat> {};
template <class D>
struct Rebuild<Rescale<D>> : RebuildStage<Rescale<D>, D, RecreateRescale> {};
template <class D, class Fn>
struct Rebuild<Map<D, Fn>> : RebuildStage<Map<D, Fn>, D, RecreateMap<Fn>> {};
template <Shape To, class D, class Fn>
struct Rebuild<ShapeMap<To, D, Fn>>
    : RebuildStage<ShapeMap<To, D, Fn>, D, RecreateShapeMap<To, Fn>> {};
template <class D>
struct Rebuild<FeaturesAsTargets<D>>
    : RebuildStage<FeaturesAsTargets<D>, D, RecreateFeaturesAsTargets> {};
template <class D>
struct Rebuild<Batch<D>> : RebuildStage<Batch<D>, D, RecreateBatch> {};
template <class D>
struct Rebuild<Prefetch<D>> : RebuildStage<Prefetch<D>, D, RecreatePrefetch> {};

}  // namespace pipeline

/// A request to validate on part of the training data, passed to `fit` instead of validation data.
/// Made by `validation_split`.
class ValidationSplit {
 public:
  /// Lets `Model::fit` recognize this type.
  static constexpr bool is_split = true;

  /// \throws UsageError unless 0 < fraction < 1.
  explicit ValidationSplit(double fraction) : fraction_(fraction) {
    if (!(fraction > 0 && fraction < 1))
      throw UsageError(
          "validation_split({}): the fraction must lie between 0 and 1, both excluded; try 0.2",
          fraction);
  }

  /// Returns the training pipeline and the validation pipeline.
  /// \throws UsageError if the pipeline is infinite or has too few examples for both parts.
  template <BatchedDataset Data>
  auto parts(const Data& data) const {
    constexpr bool possible = pipeline::Rebuild<Data>::possible;
    constexpr bool draws = pipeline::random_maps < Data >> 0;
    static_assert(
        possible,
        "lockstep::validation_split: an operation between shuffle and batch cannot be split; put "
        "take, skip, shard, concatenate and zip before shuffle");
    static_assert(
        !draws || !possible,
        "lockstep::validation_split: the random map of the training data would change the "
        "validation data too; give fit a separate validation pipeline");
    if constexpr (possible && !draws) {
      std::uint64_t first = 0;
      const auto training = [&](const auto& all) {
        first = split_index(all.size());
        return all | take(first);
      };
      auto for_training = pipeline::Rebuild<Data>::template over<true>(data, training);
      const auto validation = [&](const auto& all) { return all | skip(first); };
      auto for_validation = pipeline::Rebuild<Data>::template over<false>(data, validation);
      return std::pair(std::move(for_training), std::move(for_validation));
    } else {
      return std::pair(data, data);
    }
  }

 private:
  /// The number of training examples, floor(n * (1 - fraction)) in double, as in Keras.
  std::uint64_t split_index(std::optional<std::uint64_t> size) const {
    if (!size)
      throw UsageError(
          "validation_split: the pipeline is infinite, so it has no last part; put take before "
          "shuffle");
    const auto split =
        static_cast<std::uint64_t>(std::floor(static_cast<double>(*size) * (1.0 - fraction_)));
    if (split == 0 || split >= *size)
      throw UsageError(
          "validation_split({}) of {} examples leaves none for training or for validation; change "
          "the fraction or give fit a separate validation pipeline",
          fraction_, *size);
    return split;
  }

  double fraction_;
};

/// Holds out the last `fraction` of the data for validation (Keras' `validation_split`). The split
/// is made before shuffle and repeat. Of n examples, floor(n * (1 - fraction)) are used for
/// training.
///
/// Validation runs once through its part in order, with the same batch size, `rescale` and maps.
/// The split is a separate argument instead of a field of FitOptions, so only programs that use
/// it compile the second pipeline.
/// \throws UsageError unless 0 < fraction < 1.
/// \code
///   auto history = model.fit(train, lockstep::validation_split(0.2), {.epochs = 3});
/// \endcode
inline ValidationSplit validation_split(double fraction) { return ValidationSplit(fraction); }

}  // namespace lockstep
