/// \file
/// `Model::save_checkpoint` and `load_checkpoint`, for programs that include checkpoints. Invariant:
/// the model is unchanged after an error.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/training/checkpoint/checkpoint_writer.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/model.hpp"
#include "lockstep/training/run.hpp"

namespace lockstep::detail {

template <class Replicas>
struct ModelCheckpoints {
  static void save(Replicas& replicas, const BetweenRuns& kept, const std::string& directory,
                   std::size_t keep) {
    if (replicas.elastic() == nullptr) replicas.verify();
    save_state(replicas, kept.with(replicas), directory, keep);
  }

  static void load(Replicas& replicas, BetweenRuns& kept, const std::string& directory) {
    ElasticRuns* const elastic = replicas.elastic();
    // A loss undoes the load of a hook; a call outside of hooks replaces the whole state.
    const bool replaces = elastic != nullptr && !elastic->is_in_call();
    const auto load = [&] {
      if (replaces) elastic->boundary().pause();
      StateLayout job = replicas.layout();
      job.totals = kept.totals.size();
      const JobState loaded = load_state(replicas, job, directory);
      replicas.load(loaded);
      kept.restore(loaded);
      return true;
    };
    call_together<bool>(replicas, kept, {}, load);
  }
};

}  // namespace lockstep::detail
