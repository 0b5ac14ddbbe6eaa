/// \file
/// The checkpoints of one `fit`: when they are due, the thread that writes them, which ones are
/// kept. Invariants: the state of a checkpoint is that between two steps; at most one is being
/// written; in a job of several processes all follow the same path, and only the chief uses the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/files/checkpoint_directory.hpp"
#include "lockstep/training/callbacks/monitor.hpp"
#include "lockstep/training/checkpoint/checkpoint_options.hpp"
#include "lockstep/training/checkpoint/encoded_state.hpp"
#include "lockstep/training/checkpoint/fit_checkpoints.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

/// The newest undamaged entry of a directory, or nullopt if it has none. Logs each damaged entry.
/// `job`, `parameters`: of the model, whose sizes limit the memory that an entry takes.
/// \throws CheckpointError naming the damaged entries if there are only such; UsageError if a larger
/// entry is that of another model.
LOCKSTEP_COLD_DECL std::optional<CheckpointEntry> newest_entry(
    const CheckpointDirectory& from, const StateLayout& job,
    const std::vector<ParameterInfo>& parameters);

/// Reads an entry on the chief, sends it to the other processes, and decodes it in each. `find` is
/// called on the chief only; nullopt: there is none. An error on the chief is thrown in all
/// processes. Collective. `job`, `notes`: see decode_state.
LOCKSTEP_COLD_DECL std::optional<JobState> load_state(
    AnyReplicas& replicas, const StateLayout& job, std::string& notes,
    FunctionRef<std::optional<CheckpointEntry>()> find);

/// The state of the newest undamaged entry of a directory. Collective; only the chief reads. Logs
/// differences that change results by rounding only. \throws as `decode_state`; FileError if the
/// directory has no entry.
LOCKSTEP_COLD_DECL JobState load_state(AnyReplicas& replicas, const StateLayout& job,
                                       const std::string& directory);

/// Writes one entry, and keeps the newest `keep`, or all if it is 0. Collective; only the chief
/// writes. \throws FileError in the chief.
LOCKSTEP_COLD_DECL void save_state(AnyReplicas& replicas, JobState state,
                                   const std::string& directory, std::size_t keep = 0);

/// The checkpoints of one `fit`.
///
///     save(state):  wait for the thread -> start it with the state -> training goes on
///     thread:       encode -> write the entry -> remove entries beyond `keep`
class CheckpointWriter final : public FitCheckpoints {
 public:
  /// See CheckpointPort::make.
  LOCKSTEP_COLD_DECL CheckpointWriter(const CheckpointOptions& options, bool removes,
                                      AnyReplicas& replicas,
                                      const std::vector<std::string>& metrics);
  LOCKSTEP_COLD_DECL ~CheckpointWriter() override;

  /// Opens the directory for `save`; `begin` does so, too. \throws FileError.
  LOCKSTEP_COLD_DECL void open();
  LOCKSTEP_COLD_DECL std::optional<JobState> begin(const StateLayout& job,
                                                   std::string& notes) override;
  LOCKSTEP_COLD_DECL std::string described() const override;
  LOCKSTEP_COLD_DECL void warn_if_never_logged(const TrainingControl& run) override;
  LOCKSTEP_COLD_DECL void note_epoch(const Logs& logs, std::uint64_t steps) override;
  LOCKSTEP_COLD_DECL void wait() override;
  LOCKSTEP_COLD_DECL void save(JobState state) override;
  LOCKSTEP_COLD_DECL void finish() override;
  LOCKSTEP_COLD_DECL std::optional<BestCheckpoint> best() const override;
  LOCKSTEP_COLD_DECL void continue_from(const JobState& state,
                                        std::optional<std::uint64_t> last) override;

 private:
  /// Body of the thread.
  LOCKSTEP_COLD_DECL void write(const JobState& state, std::optional<std::uint64_t> best);
  /// Waits for the thread. \throws its error.
  LOCKSTEP_COLD_DECL void join();
  LOCKSTEP_COLD_DECL static void log_error(const std::exception& error);
  LOCKSTEP_COLD_DECL void prune(std::uint64_t newest, std::optional<std::uint64_t> best);

  const bool removes_;
  AnyReplicas& replicas_;
  const std::vector<ParameterInfo> parameters_;
  CheckpointDirectory directory_;
  Monitor monitor_;
  /// Removes entries; logs an error.
  LOCKSTEP_COLD_DECL static void keep_on_error(FunctionRef<void()> remove);

  std::optional<std::uint64_t> best_step_;
  std::optional<std::uint64_t> best_on_disk_;  // used by the thread, as `known_`
  // Entries that were there before this object wrote, and those that it has written. Another one
  // with more steps is that of a chief that has replaced this process meanwhile.
  std::vector<std::uint64_t> known_;
  std::optional<double> best_;
  std::exception_ptr error_;  // of the thread, which must have been joined
  std::thread thread_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checkpoint/checkpoint_writer.ipp"
#endif
