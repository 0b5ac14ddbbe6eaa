/// \file
/// The batches of one pass, for a program's own training loop. Invariant: a pass that is left, or
/// that a checkpoint interrupts, continues with its next batch.
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/training/checks/describe_data.hpp"
#include "lockstep/training/checks/model_signature.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"
#include "lockstep/training/step/program_steps.hpp"
#include "lockstep/training/step_batch.hpp"

namespace lockstep::detail {

/// The batches of the next pass over the training data, each this process' share. An input range,
/// to be iterated once, by a model that stays where it is. A batch counts as read when the loop
/// gets it: after `break`, or with a checkpoint that was saved in the loop, the next range
/// continues with the one that follows.
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
    if (kept.read_from && kept.read_from != std::pair(data.size(), data.batch_size()))
      kept.examples = 0;  // the pass that the last loop has left is of other data
    kept.read_from.emplace(data.size(), data.batch_size());
    if constexpr (!Replicas::is_one_process)
      if (!replicas.is_alone()) {
        Signature fields =
            data_signature(described<typename Replicas::T>(data, std::nullopt), std::nullopt, true);
        fields.emplace_back("passes", std::to_string(kept.passes));
        fields.emplace_back("place in the pass", std::to_string(kept.examples));
        compare_signatures(replicas, "batches", fields);
        replicas.verify_weights();
      }
  }
  BatchRange(const BatchRange&) = delete;
  BatchRange& operator=(const BatchRange&) = delete;
  ~BatchRange() { end_loop(); }

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
      range_->replicas_->or_fail([&] { range_->advance(); });
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return range_->has_ended_; }

   private:
    BatchRange* range_;
  };

  /// \throws UsageError if another loop over batches of the model runs.
  iterator begin() {
    if (kept_->is_in_loop && !is_in_loop_)
      throw UsageError(
          "batches: another loop over batches of this model runs; end it first, or make one data "
          "set of both with ls::zip");
    is_in_loop_ = kept_->is_in_loop = true;
    has_ended_ = false;
    replicas_->or_fail([&] {
      loader_.begin({replicas_->seed(), kept_->passes}, kept_->examples);
      advance();
    });
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
    end_loop();
  }
  void end_loop() {
    if (std::exchange(is_in_loop_, false)) kept_->is_in_loop = false;
  }

  Replicas* replicas_;
  BetweenRuns* kept_;
  Loader<typename Replicas::T> loader_;
  Batch batch_;
  bool has_ended_ = true, is_in_loop_ = false;
};

}  // namespace lockstep::detail
