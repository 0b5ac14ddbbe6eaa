/// \file
/// The batches of one pass, for a program's own training loop. Invariant: a pass that is left, or that
/// a checkpoint interrupts, continues with its next batch.
#pragma once

#include <cstddef>
#include <iterator>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/training/step_batch.hpp"
#include "lockstep/training/evaluation.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"
#include "lockstep/training/step/program_steps.hpp"

namespace lockstep {

/// Options of `model.batches`.
struct BatchesOptions {
  ClassWeights class_weight{};  ///< as in FitOptions
};

namespace detail {

/// The batches of the next pass over the training data, each this process' share. An input range,
/// to be iterated once, by a model that stays where it is. A batch counts as read when the loop gets
/// it: after `break`, or with a checkpoint that was saved in the loop, the next range continues with
/// the one that follows.
template <class Replicas, class Data>
class BatchRange {
 public:
  using Batch = typename ProgramSteps<Replicas>::Batch;

  /// Compares data and weights of all processes. Collective. \throws UsageError, ReplicasDiverged.
  BatchRange(Replicas& replicas, BetweenRuns& kept, const Data& data, const BatchesOptions& options)
      : replicas_(&replicas),
        kept_(&kept),
        loader_(
            batches_over<false>(replicas, data, "batches: the training", options.class_weight)) {
    check_class_weights<typename Replicas::Network, typename Replicas::Loss>(options.class_weight);
    if (replicas.elastic() != nullptr)
      throw UsageError(
          "batches: in an elastic job workers come and go within a pass; train with fit(data, "
          "options, step), where step(batch) is the body of the loop");
    if constexpr (!Replicas::is_one_process) {
      compare_data<typename Replicas::T>(replicas, "batches", data, {});
      replicas.verify_weights();
    }
  }

  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = const Batch*;
    using reference = const Batch&;

    explicit iterator(BatchRange& range) : range_(&range) {}
    const Batch& operator*() const { return range_->batch_; }
    const Batch* operator->() const { return &range_->batch_; }
    iterator& operator++() {
      range_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return range_->has_ended_; }

   private:
    BatchRange* range_;
  };

  iterator begin() {
    loader_.begin({replicas_->seed(), kept_->passes}, kept_->examples);
    has_ended_ = false;
    advance();
    return iterator(*this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  void advance() {
    LoadedBatch loaded;
    if (has_ended_) return;
    if (loader_.next(loaded)) {
      kept_->examples += loaded.slice.global_count;
      batch_ = ProgramSteps<Replicas>::of(loaded);
      return;
    }
    has_ended_ = true;
    kept_->examples = 0;
    ++kept_->passes;
  }

  Replicas* replicas_;
  BetweenRuns* kept_;
  Loader<typename Replicas::T> loader_;
  Batch batch_;
  bool has_ended_ = true;
};

}  // namespace detail
}  // namespace lockstep
