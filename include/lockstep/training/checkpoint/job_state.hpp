/// \file
/// The state of a training job as one value. Invariants: a job that continues from it makes the
/// same steps as one that never stopped; the value does not depend on the number of replicas or
/// processes, unless replicas keep gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback_state.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/training/layer_settings.hpp"
#include "lockstep/training/report/running_logs.hpp"
#include "lockstep/training/step/loss_scale.hpp"
#include "lockstep/training/step/run_requests.hpp"

namespace lockstep::detail {

/// Where the fit of an elastic job is within an execution (steps_per_execution), since a boundary
/// is before the hooks between two of them. A checkpoint is saved after these.
struct ExecutionPosition {
  std::uint64_t before = 0, steps = 0;  ///< steps of the model before the execution, and within it
  RunRequests requests{};               ///< effective after the last execution or epoch
  RunRequests agreed{};                 ///< of the last step
  std::optional<std::uint64_t> last_checkpoint{};  ///< in steps of the model
  /// Of asynchronous steps: those after the first one that is not made; see MadeSteps.
  std::vector<std::uint64_t> ahead{};
  bool is_complete = false;  ///< all steps of the asynchronous phase are made
};

/// Where a `fit` stands between two steps.
struct RunPosition {
  int epoch = 0;                   ///< the epoch of the next step, counted from 0
  std::uint64_t steps = 0;         ///< steps of that epoch so far
  std::uint64_t pass = 0;          ///< the pass that the next step reads
  std::uint64_t examples = 0;      ///< examples of that pass so far
  std::uint64_t first_update = 0;  ///< updates of the model when the run began
  bool has_ended = false;          ///< a callback or the end of the data ended training
  RunningLogs::State logs{};       ///< of the epoch so far
  std::optional<ExecutionPosition> execution{};
};

/// The best checkpoint of a run so far.
struct BestCheckpoint {
  std::string name;  ///< of the value: another run may monitor another one
  double value = 0;
  std::uint64_t step = 0;
};

/// The elements that one process has of a state whose slots the replicas divide. All buffers have
/// places for all elements, or are empty if the process has none.
struct OwnedState {
  Ranges owned{};           ///< elements of the slots; the weights have these, too
  bool has_weights = true;  ///< the weights are complete
  bool has_state = true;    ///< the layers' state is that of these weights
  /// Weights and slots in `owned` after a later update, which others may not have received; empty if
  /// there was none.
  std::vector<std::vector<std::byte>> later{};
  std::vector<std::byte> later_state{};  ///< of layers
  std::uint64_t later_steps = 0;
};

/// Gradients that the replicas of a job have not sent; see KeepsGradients. The buffers have the size of
/// the weights.
struct KeptGradients {
  std::vector<std::vector<std::byte>> of_replica{};
  std::vector<std::byte> factors{};  ///< empty if there are none
  std::size_t factors_layout = 0;    ///< see KeepsGradients
};

/// The buffers of a state that are too large for this process, in the numbering of buffer_of.
class DistantBuffers {
 public:
  DistantBuffers() = default;
  DistantBuffers(const DistantBuffers&) = delete;
  DistantBuffers& operator=(const DistantBuffers&) = delete;
  virtual ~DistantBuffers() = default;
  /// Reads bytes of a buffer from byte `first` on.
  virtual void read(std::size_t buffer, std::size_t first, std::span<std::byte> to) = 0;
};

/// Everything on which the next step of a job depends.
struct JobState {
  // The model: flat buffers on the host, with the elements of `type`.
  DType type = DType::float32;
  std::vector<std::byte> weights, state;
  std::vector<std::pair<std::string, std::vector<std::byte>>>
      slot_values;  ///< of optimizer and options
  /// Has weights and slots, which are empty here then.
  std::shared_ptr<DistantBuffers> distant{};
  std::uint64_t steps = 0;
  LossScaleState loss_scale{};
  bool has_averages_in_weights = false;   ///< weights and their averages are exchanged
  std::optional<OwnedState> owned{};      ///< of one process alone; see AnyModelState::save_own
  std::shared_ptr<KeptGradients> kept{};  ///< null if there are none
  NamedSettings settings{};               ///< of layers
  std::uint64_t seed = 0;
  // Between runs; see BetweenRuns.
  std::optional<double> rate{};
  std::uint64_t passes = 0, examples = 0;
  std::vector<double> totals{};
  // The run; without a position the model was saved between two runs.
  std::optional<RunPosition> position{};
  std::optional<BestCheckpoint> best{};
  std::vector<std::pair<std::string, CallbackState>> callbacks{};

  /// Properties that must be equal when the job continues; see model_signature, fit_signature.
  Signature signature{};
  std::size_t replicas = 1, workers = 1;

  /// Frees the memory of the model's buffers.
  void drop_buffers() {
    weights = {};
    state = {};
    slot_values = {};
    owned.reset();
    kept.reset();
    distant.reset();
  }
};

/// The field of a signature that is there if each replica has buffers of its own.
inline constexpr const char* buffers_field = "the optimizer's buffers";

/// The description of a model's buffers that a state must fit, without the buffers.
struct StateLayout {
  DType type = DType::float32;
  std::size_t weights = 0, state = 0;     ///< bytes
  std::vector<std::string> slot_names{};  ///< each slot has as many bytes as the weights
  std::vector<double> slot_starts{};      ///< initial values of those that do not begin with 0
  std::size_t factors_layout = 0;         ///< see KeptGradients; 0: replicas keep nothing
  std::size_t totals = 0;                 ///< see JobState::totals
  Signature signature{};                  ///< see JobState::signature
  bool is_distant = false;                ///< weights and slots are read in parts
  std::string policy{};                   ///< the update policy's name, for messages

  std::size_t buffers() const { return 2 + slot_names.size(); }
};

/// The buffers of a state: weights, state, slots.
inline std::vector<std::byte>& buffer_of(JobState& state, std::size_t i) {
  return i == 0 ? state.weights : i == 1 ? state.state : state.slot_values[i - 2].second;
}

}  // namespace lockstep::detail
