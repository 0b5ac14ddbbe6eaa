/// \file
/// The checkpoints of one `fit`: when they are due, the thread that writes them, which ones are
/// kept. Invariants: the state of a checkpoint is that between two steps; at most one is being
/// written; in a job of several processes all follow the same path, and only the chief uses the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/files/checkpoint_directory.hpp"
#include "lockstep/training/callbacks/monitor.hpp"
#include "lockstep/training/checkpoint/checkpoint_options.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

/// The name under which the best value is saved among the states of the callbacks.
inline constexpr std::string_view best_state_name = "best checkpoint";

/// The newest undamaged entry of a directory, or nullopt if it has none. Logs each damaged entry.
/// \throws CheckpointError naming the damaged entries if there are only such.
LOCKSTEP_COLD_DECL std::optional<CheckpointEntry> newest_entry(const CheckpointDirectory& from);

/// Reads an entry on the chief, sends it to the other processes, and decodes it in each. `find` is
/// called on the chief only; nullopt: there is none. An error on the chief is thrown in all
/// processes. Collective. `job`, `notes`: see decode_state.
LOCKSTEP_COLD_DECL std::optional<JobState> load_state(
    AnyReplicas& replicas, const JobState& job, std::string& notes,
    FunctionRef<std::optional<CheckpointEntry>()> find);

/// The state of the newest undamaged entry of a directory. Collective; only the chief reads. Logs
/// differences that change results by rounding only. \throws as `decode_state`; FileError if the
/// directory has no entry.
LOCKSTEP_COLD_DECL JobState load_state(AnyReplicas& replicas, const JobState& job,
                                       const std::string& directory);

/// Logs that the job continues from a checkpoint with results that are equal up to rounding, and why.
LOCKSTEP_COLD_DECL void log_rounding(std::string_view directory, std::string_view notes);

/// Writes one entry, and keeps the newest `keep`, or all if it is 0. Collective; only the chief
/// writes. \throws FileError in the chief.
LOCKSTEP_COLD_DECL void save_state(AnyReplicas& replicas, JobState state,
                                   const std::string& directory, std::size_t keep = 0);

/// The checkpoints of one `fit`.
///
///     save(state):  wait for the thread -> start it with the state -> training goes on
///     thread:       encode -> write the entry -> remove entries beyond `keep`
class Checkpoints {
 public:
  /// `removes`: when training has ended, the checkpoints are removed. \throws UsageError if an option
  /// is invalid.
  LOCKSTEP_COLD_DECL Checkpoints(const CheckpointOptions& options, bool removes,
                                 AnyReplicas& replicas, const std::vector<std::string>& metrics);
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;
  /// Waits for the thread; logs its error, if any.
  LOCKSTEP_COLD_DECL ~Checkpoints();

  /// Opens the directory for `save`; `begin` does so, too. \throws FileError.
  LOCKSTEP_COLD_DECL void open();
  /// Opens the directory, and reads the newest checkpoint if options.resume is set. Collective.
  /// `job`, `notes`: see decode_state. \throws FileError, CheckpointError, UsageError.
  LOCKSTEP_COLD_DECL std::optional<JobState> begin(const JobState& job, std::string& notes);

  /// Whether a checkpoint is due between steps `before` and `after`, counted over the model's life.
  bool is_due(std::uint64_t before, std::uint64_t after) const {
    return options_.every > 0 && before / options_.every != after / options_.every;
  }
  bool is_due_after_epochs() const { return options_.every == 0 || !options_.best.empty(); }
  /// Steps of the last checkpoint that was saved or loaded.
  const std::optional<std::uint64_t>& last_step() const { return last_step_; }

  /// Notes the logs of a finished epoch, after `steps` steps: the checkpoint of this step may become
  /// the best one.
  LOCKSTEP_COLD_DECL void note_epoch(const Logs& logs, std::uint64_t steps);
  /// Waits for the thread. \throws its error if options.required is set, otherwise logs it.
  LOCKSTEP_COLD_DECL void wait();
  /// Saves the state. Only the chief does; the other processes call `skip`.
  LOCKSTEP_COLD_DECL void save(JobState state);
  /// Notes that the chief saves the state after `steps` steps.
  void skip(std::uint64_t steps) { last_step_ = steps; }
  /// Called when training has ended and will not be continued; removes the checkpoints if so asked.
  LOCKSTEP_COLD_DECL void finish();
  const std::string& directory() const { return options_.directory; }

  // --- of an elastic job ---

  /// The process that saves from now on opens the directory with its next checkpoint.
  void set_chief(bool is_chief) { is_chief_ = is_chief; }
  /// Adds what `continue_from` reads.
  LOCKSTEP_COLD_DECL void add_best(JobState& state) const;
  /// Continues as a process that has taken part so far; `last`: see last_step.
  LOCKSTEP_COLD_DECL void continue_from(const JobState& state, std::optional<std::uint64_t> last);

 private:
  /// Body of the thread.
  LOCKSTEP_COLD_DECL void write(const JobState& state, std::optional<std::uint64_t> best);
  /// Waits for the thread. \throws its error.
  LOCKSTEP_COLD_DECL void join();
  LOCKSTEP_COLD_DECL static void log_error(const std::exception& error);
  LOCKSTEP_COLD_DECL void prune(std::uint64_t newest, std::optional<std::uint64_t> best);

  const CheckpointOptions options_;
  const bool removes_;
  AnyReplicas& replicas_;
  bool is_chief_;
  const std::vector<ParameterInfo> parameters_;
  CheckpointDirectory directory_;
  Monitor monitor_;
  /// Removes entries; logs an error.
  LOCKSTEP_COLD_DECL static void keep_on_error(FunctionRef<void()> remove);

  std::optional<std::uint64_t> last_step_, best_step_;
  std::optional<std::uint64_t> best_on_disk_;  // used by the thread
  std::optional<double> best_;
  std::future<void> written_;  // the thread's result; valid until `join`
  std::thread thread_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checkpoint/checkpoints.ipp"
#endif
