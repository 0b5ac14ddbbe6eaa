/// \file
/// A batch that a program passes to its model: from a pipeline or from its own memory. Invariant: a
/// batch refers to its examples and copies none.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// The part of a batch in memory that each process of a job passes.
enum class BatchScope {
  global,  ///< the same whole batch in every process
  local    ///< its own part: in the order of ranks, the parts are the global batch
};
/// All processes pass the same batch, and each computes its share:
/// \code
///   model.train_on_batch(ls::global_batch, x, y);
/// \endcode
inline constexpr BatchScope global_batch = BatchScope::global;
/// Each process passes its part of the batch. lockstep divides n examples as evenly as it can, the
/// larger parts first, and the parts must have these sizes.
/// \code
///   model.train_on_batch(ls::local_batch, x, y);
/// \endcode
inline constexpr BatchScope local_batch = BatchScope::local;

namespace detail {
/// \throws UsageError unless `found` is `examples * width`.
[[gnu::cold]] inline void check_batch_values(const char* call, std::size_t found,
                                             std::size_t examples, std::size_t width) {
  if (found != examples * width)
    throw UsageError("{}: {} examples need {} values, not {}", call, examples, examples * width,
                     found);
}

/// Elements of the fields of an example.
struct BatchWidths {
  std::size_t input = 0, target = 0, weight = 1;
};
}  // namespace detail

/// The examples of one step that this process has: all of them, or its share in a job of several
/// processes. T is the device's element type, Target that of the loss. Valid as long as the
/// examples: a batch of `model.batches(data)` until the loop's next one.
/// \code
///   for (const auto& batch : model.batches(train)) {
///     const auto soft = teacher.predict(batch.x());           // (examples, classes)
///     model.train_step(batch.with_targets(soft.elements()));
///   }
/// \endcode
template <class T, class Target>
class Batch {
 public:
  Batch() = default;
  Batch(const LoadedBatch& loaded, const detail::BatchWidths& widths)
      : loaded_(loaded), widths_(widths) {}

  /// Examples of this process, and of all.
  std::size_t size() const { return loaded_.slice.count; }
  std::size_t global_size() const { return loaded_.slice.global_count; }
  /// Place of the first example of this process in the global batch.
  std::size_t first() const { return loaded_.slice.first; }
  /// (size(), input).
  std::span<const T> x() const { return {loaded_.rows<T>(0), size() * widths_.input}; }
  /// (size(), target).
  std::span<const Target> y() const { return {loaded_.rows<Target>(1), size() * widths_.target}; }
  /// (size()), one for each example, or one for each of its positions; empty: all 1.
  std::span<const T> weights() const {
    const T* const first = loaded_.rows<T>(2);
    return {first, first != nullptr ? size() * widths_.weight : 0};
  }

  /// The same batch with other inputs, targets or sample weights, which must live as long as the
  /// result is used. \throws UsageError for another number of values.
  Batch with_inputs(std::span<const T> x) const {
    detail::check_batch_values("with_inputs", x.size(), size(), widths_.input);
    return with(0, x.data());
  }
  Batch with_targets(std::span<const Target> y) const {
    detail::check_batch_values("with_targets", y.size(), size(), widths_.target);
    return with(1, y.data());
  }
  Batch with_weights(std::span<const T> w) const {
    if (widths_.weight > 1 && w.size() == size()) {
      const auto repeated = std::make_shared<std::vector<T>>();
      for (const T weight : w) repeated->insert(repeated->end(), widths_.weight, weight);
      Batch result = with(2, repeated->data());
      result.weights_ = repeated;
      return result;
    }
    detail::check_batch_values("with_weights", w.size(), size(), widths_.weight);
    return with(2, w.data());
  }

  const LoadedBatch& loaded() const { return loaded_; }
  const detail::BatchWidths& widths() const { return widths_; }

 private:
  Batch with(std::size_t field, const void* values) const {
    static constexpr std::byte none{};
    Batch result = *this;
    result.loaded_.field[field] = values != nullptr ? values : &none;  // of an empty share
    return result;
  }

  LoadedBatch loaded_;
  detail::BatchWidths widths_;
  std::shared_ptr<const std::vector<T>>
      weights_;  // one for each position, made of those of examples
};

}  // namespace lockstep
