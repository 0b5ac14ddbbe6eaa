/// \file
/// The interface through which the loop of `fit` uses checkpoints; <lockstep/checkpoints.hpp>
/// implements it. Invariant: in a job of several processes all call the same functions in the same
/// order, and only the chief uses the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/port.hpp"
#include "lockstep/training/checkpoint/checkpoint_options.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

/// The checkpoints of one `fit`. Implemented by CheckpointWriter.
class FitCheckpoints {
 public:
  FitCheckpoints(const FitCheckpoints&) = delete;
  FitCheckpoints& operator=(const FitCheckpoints&) = delete;
  /// Waits until the last checkpoint is on disk; logs an error.
  virtual ~FitCheckpoints() = default;

  /// Opens the directory, and reads the newest checkpoint if options.resume is set. Collective.
  /// `job`, `notes`: see decode_state. \throws FileError, CheckpointError, UsageError.
  virtual std::optional<JobState> begin(const StateLayout& job, std::string& notes) = 0;
  /// When checkpoints are due, as text: all processes of a job compare the replicas before each.
  virtual std::string described() const = 0;
  /// Whether a checkpoint is due between steps `before` and `after`, counted over the model's life.
  bool is_due(std::uint64_t before, std::uint64_t after) const {
    return options_.every > 0 && before / options_.every != after / options_.every;
  }
  /// The steps after `now` until one is due; the largest number if none is between epochs.
  std::uint64_t steps_until_due(std::uint64_t now) const {
    return options_.every > 0 ? options_.every - now % options_.every
                              : std::numeric_limits<std::uint64_t>::max();
  }
  bool is_due_after_epochs() const { return options_.every == 0 || !options_.best.empty(); }
  /// Steps of the last checkpoint that was saved or loaded.
  const std::optional<std::uint64_t>& last_step() const { return last_step_; }

  /// Warns in the chief if the run will never log the value of options.best.
  virtual void warn_if_never_logged(const TrainingControl& run) = 0;
  /// Notes the logs of a finished epoch, after `steps` steps: the checkpoint of this step may become
  /// the best one.
  virtual void note_epoch(const Logs& logs, std::uint64_t steps) = 0;
  /// Waits for the checkpoint that is being written. \throws its error if options.required is set,
  /// otherwise logs it.
  virtual void wait() = 0;
  /// The best checkpoint, as a part of the state.
  virtual std::optional<BestCheckpoint> best() const = 0;
  /// Saves the state. Only the chief does; the other processes call `skip`.
  virtual void save(JobState state) = 0;
  /// Notes that the chief saves the state after `steps` steps.
  void skip(std::uint64_t steps) { last_step_ = steps; }
  /// Called when training has ended and will not be continued; removes the checkpoints if so asked.
  virtual void finish() = 0;
  const std::string& directory() const { return options_.directory; }

  // --- of an elastic job ---

  /// The process that saves from now on opens the directory with its next checkpoint.
  void set_chief(bool is_chief) { is_chief_ = is_chief; }
  /// Continues as a process that has taken part so far; `last`: see last_step.
  virtual void continue_from(const JobState& state, std::optional<std::uint64_t> last) = 0;

 protected:
  FitCheckpoints(CheckpointOptions options, bool is_chief)
      : options_(std::move(options)), is_chief_(is_chief) {}

  const CheckpointOptions options_;
  bool is_chief_;
  std::optional<std::uint64_t> last_step_;
};

/// Makes and writes checkpoints.
class CheckpointPort {
 public:
  /// `removes`: when training has ended, the checkpoints are removed. \throws UsageError if an option
  /// is invalid.
  virtual std::unique_ptr<FitCheckpoints> make(const CheckpointOptions& options, bool removes,
                                               AnyReplicas& replicas,
                                               const std::vector<std::string>& metrics) const = 0;
  /// Writes one entry, and keeps the newest `keep`, or all if it is 0. Collective; only the chief
  /// writes. \throws FileError in the chief.
  virtual void save(AnyReplicas& replicas, JobState state, const std::string& directory,
                    std::size_t keep) const = 0;

 protected:
  ~CheckpointPort() = default;
};

#ifdef LOCKSTEP_SEPARATE_COMPILATION
template <>
const CheckpointPort* port<CheckpointPort>();
#endif

/// \throws UsageError if the program does not include checkpoints.
[[gnu::cold]] inline const CheckpointPort& checkpoint_port() {
  const CheckpointPort* const found = port<CheckpointPort>();
  if (found == nullptr)
    throw UsageError(
        "checkpoint: this program was built without checkpoints; add #include "
        "<lockstep/checkpoints.hpp>");
  return *found;
}

}  // namespace lockstep::detail
