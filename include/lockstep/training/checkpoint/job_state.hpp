/// \file
/// The state of a training job as one value, which can be saved, loaded and sent. Invariants: a job
/// that continues from it makes the same steps as one that never stopped; the value does not depend
/// on the number of replicas or processes; a file that does not fit the model is refused with the
/// name of the tensor or field, before the model changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback_state.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/files/checkpoint_directory.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/report/running_logs.hpp"
#include "lockstep/training/step/loss_scale.hpp"

namespace lockstep::detail {

/// Where a `fit` stands between two steps.
struct RunPosition {
  int epoch = 0;                   ///< the epoch of the next step, counted from 0
  std::uint64_t steps = 0;         ///< steps of that epoch so far
  std::uint64_t pass = 0;          ///< the pass that the next step reads
  std::uint64_t examples = 0;      ///< examples of that pass so far
  std::uint64_t first_update = 0;  ///< updates of the model when the run began
  bool has_ended = false;          ///< a callback or the end of the data ended training
  RunningLogs::State logs{};       ///< of the epoch so far
};

/// Everything on which the next step of a job depends.
struct JobState {
  // The model: flat buffers on the host, with the elements of `type`.
  DType type = DType::float32;
  std::vector<std::byte> weights, state;
  std::vector<std::pair<std::string, std::vector<std::byte>>> slots;  ///< of optimizer and options
  std::uint64_t steps = 0;
  LossScaleState loss_scale{};
  bool has_averages_in_weights = false;  ///< weights and their averages are exchanged
  std::uint64_t seed = 0;
  // Between runs; see BetweenRuns.
  std::optional<double> rate{};
  std::uint64_t passes = 0;
  std::vector<double> totals{};
  // The run; without a position the model was saved between two runs.
  std::optional<RunPosition> position{};
  std::vector<std::pair<std::string, CallbackState>> callbacks{};

  /// Properties that must be equal when the job continues; see model_signature, fit_signature.
  Signature signature{};
  std::size_t replicas = 1, workers = 1;

  /// Frees the memory of the model's buffers.
  void drop_buffers() {
    weights = {};
    state = {};
    slots = {};
  }
};

/// Encodes a state as an entry of a CheckpointDirectory. The files refer to the memory of `state`
/// and of this object, which must outlive their use.
class EncodedState {
 public:
  LOCKSTEP_COLD_DECL EncodedState(const JobState& state,
                                  const std::vector<ParameterInfo>& parameters);
  EncodedState(const EncodedState&) = delete;
  EncodedState& operator=(const EncodedState&) = delete;

  const std::vector<CheckpointFile>& files() const { return files_; }
  const std::string& description() const { return description_; }

 private:
  std::vector<std::string> heads_;  // of the safetensors files
  std::vector<CheckpointFile> files_;
  std::string description_;
};

/// Decodes an entry for a job that continues. `job` is the state of that job before its next step:
/// its signature, the type of its elements, the names and sizes of its buffers. `notes` gets the
/// differences that change results by rounding only, for the log. \throws UsageError naming the first
/// field of the signature that differs; CheckpointError naming the member or tensor that is missing
/// or wrong.
LOCKSTEP_COLD_DECL JobState decode_state(CheckpointEntry entry,
                                         const std::vector<ParameterInfo>& parameters,
                                         const JobState& job, std::string& notes);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checkpoint/job_state.ipp"
#endif
