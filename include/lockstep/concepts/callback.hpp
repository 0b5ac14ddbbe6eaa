/// \file
/// Hooks for user code in `fit`, `evaluate` and `predict`. Invariants: every hook is virtual and
/// does nothing by default, so an `override` of a misspelt hook does not compile; the control is
/// set only during a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback_state.hpp"
#include "lockstep/concepts/named_tensor.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/port.hpp"

namespace lockstep {

struct Architecture;

namespace detail {
class CheckpointWriter;  // in <lockstep/checkpoints.hpp>
class StepRecorder;      // in <lockstep/trace.hpp>
}  // namespace detail

/// The size of a run and its place in the job, known before its first step.
struct TrainingParams {
  int epochs = 1;                        ///< number of the last epoch, counted from 1
  int initial_epoch = 0;                 ///< first epoch, counted from 0
  std::optional<std::uint64_t> steps{};  ///< steps of an epoch, of `evaluate` or of `predict`;
                                         ///< empty while unknown
  std::uint64_t first_step = 0;          ///< number of the run's first step, counted from 0
  bool resumed = false;                  ///< `fit` continues from a checkpoint
  std::size_t batch_size = 0;            ///< global batch
  int verbose = 1;                       ///< as in Keras: 0 silent, 1 progress bar, 2 one line per
                                         ///< epoch
  std::vector<std::string> metrics{};    ///< names in the logs, "loss" first
  bool has_validation = false;           ///< `fit` also logs these names with "val_"
  int rank = 0;                          ///< rank of this process in the job
  int replicas = 1;                      ///< number of replicas in the whole job
};

/// The operations that a callback may perform on the run it observes. Implemented by the training
/// loop.
class TrainingControl {
 public:
  LOCKSTEP_COLD_DECL virtual ~TrainingControl();
  /// Stops training after the current batch (Keras' `model.stop_training = True`).
  virtual void stop_training() = 0;
  virtual bool stop_requested() const = 0;
  /// Steps that the model has made so far, in this run and before it.
  virtual std::uint64_t steps() const = 0;
  /// Learning rate of the next step.
  virtual double learning_rate() const = 0;
  /// Overrides the learning rate, and any schedule, from the next step on. In a job of several
  /// processes one process may set it for all; if several do, the lowest rank counts.
  virtual void set_learning_rate(double rate) = 0;
  /// In on_epoch_end: adds a number to the logs of this epoch, for the callbacks that follow, the
  /// progress and the history, after this one returns. \throws UsageError elsewhere.
  virtual void log(std::string_view name, double value) = 0;
  /// A copy of all parameters, in the format that `set_weights` accepts.
  virtual std::vector<std::byte> weights() const = 0;
  /// Restores parameters. Call it in every process: `fit` compares the replicas when it begins and
  /// throws if they differ. \throws UsageError if the size of `weights` is not this model's.
  virtual void set_weights(std::span<const std::byte> weights) = 0;
  /// Writes all parameters to a safetensors file, as Model::save_weights. Only the chief writes,
  /// but every process calls it. \throws FileError.
  virtual void save_weights(const std::string& path) = 0;
  /// Writes a checkpoint into a directory, as Model::save_checkpoint. Only the chief writes, but
  /// every process calls it. \throws FileError.
  /// `keep`: newest checkpoints to keep in the directory; 0: all. Needs <lockstep/checkpoints.hpp>.
  template <class Feature = detail::CheckpointWriter>
  void save_checkpoint(const std::string& directory, std::size_t keep) {
    static_assert(detail::Complete<Feature>,
                  "lockstep::TrainingControl: save_checkpoint needs #include "
                  "<lockstep/checkpoints.hpp>");
    write_checkpoint(directory, keep);
  }
  virtual void write_checkpoint(const std::string& directory, std::size_t keep) = 0;
  /// Whether the layers whose names match one of the patterns train from the next step on, as
  /// Model::set_trainable. Call it in every process. \throws UsageError for a pattern that selects no
  /// layer.
  LOCKSTEP_COLD_DECL virtual void set_trainable(const std::vector<std::string>& layers, bool on);
  /// Exchanges the weights with their moving averages (`use_ema`), so that the model has the
  /// averages or, with false, the weights again. Does nothing if it has them already, and before
  /// the first update, when there are no averages yet. Call it in every process. \throws UsageError
  /// if the optimizer keeps no averages.
  virtual void swap_averages(bool averages) = 0;
  /// In an elastic job, an exchange with all workers, after which the chief writes a file. A chief
  /// that was frozen, and replaced meanwhile, does not write then. Call it in every process. Does
  /// nothing in other jobs. \throws PeerLost if the workers have changed; the run handles that.
  LOCKSTEP_COLD_DECL virtual void check_membership();
  /// Whether the gradients of the last step and the weights after it are finite; costs one pass
  /// over both. A finite loss does not imply this: backward or the update may overflow, and cuDNN's
  /// ReLU may map NaN to 0.
  /// Gradients are not checked on a device that scales the loss, since it skips updates that
  /// overflow. True after a step of a round (ls::LocalSgd) before its last one: the weights are those
  /// after the round.
  virtual bool is_finite() const = 0;
  /// Names the values of the last step that are NaN or infinite: the replica of a loss, the
  /// parameters of gradients and weights. Empty if all are finite.
  virtual std::string not_finite() const = 0;
  /// Copies of all parameters, in the order of the layers, and of their gradients in the last step,
  /// penalties included. Costs a copy from the device; no other process takes part.
  virtual std::vector<NamedTensor> tensors() const = 0;
  virtual const TrainingParams& params() const = 0;
  /// Whether the logs of an epoch may have a value of this name: one of `params().metrics`, one of
  /// these with "val_" if there is validation data, or one that a callback may add.
  LOCKSTEP_COLD_DECL virtual bool may_log(std::string_view name) const;
  /// The layers of the model; see training/export/architecture.hpp.
  virtual Architecture architecture() const = 0;
  /// Starts to record what this process' replicas do: layers, exchanges, waits, phases of the loop.
  /// `steps`: how many to reserve memory for. In a job of several processes all call it between the
  /// same steps. See ls::Trace, which calls both functions. \throws UsageError if a trace is
  /// active, or if the run cannot record.
  /// Needs <lockstep/trace.hpp>.
  template <class Feature = detail::StepRecorder>
  void begin_trace(std::uint64_t steps) {
    static_assert(detail::Complete<Feature>,
                  "lockstep::TrainingControl: begin_trace needs #include <lockstep/trace.hpp>");
    start_trace(steps);
  }
  LOCKSTEP_COLD_DECL virtual void start_trace(std::uint64_t steps);
  /// Ends the recording. \returns the trace of the whole job as JSON in Chrome's format; empty in
  /// processes other than the chief. Collective, as `begin_trace`.
  LOCKSTEP_COLD_DECL virtual std::string end_trace();
};

/// Where a run of an elastic job stands after its workers have changed; see
/// Callback::on_workers_change.
struct WorkersChange {
  int epoch = 0;           ///< of the next step, counted from 0
  std::size_t batch = 0;   ///< the next step within the epoch
  std::uint64_t step = 0;  ///< steps of the model so far
  bool was_chief = false;  ///< params().rank was 0
  bool is_chief = false;   ///< params().rank is 0: this process writes files from now on
};

/// Base class of callbacks, with Keras' hooks. Epochs and batches are counted from 0.
///
/// Order of calls in `fit`:
/// \code
///   train_begin
///     epoch_begin
///       train_batch_begin, train_batch_end    each batch; with steps_per_execution each execution,
///                                             with the indices of its first and last batch
///       test_begin                            only with validation data
///         test_batch_begin, test_batch_end    each batch
///       test_end
///     epoch_end
///   train_end
/// \endcode
/// `evaluate` and `predict` call only their own hooks. An exception from a hook ends the run.
/// Source: keras/src/callbacks/callback.py.
/// \code
///   struct StopWhenGood : lockstep::Callback {
///     void on_epoch_end(int, const lockstep::Logs& logs) override {
///       if (logs["accuracy"] > 0.99) control().stop_training();
///     }
///   };
/// \endcode
class Callback {
 public:
  Callback() = default;
  LOCKSTEP_COLD_DECL virtual ~Callback();
  // The control belongs to the run, so a copy starts without one.
  Callback(const Callback&) noexcept {}
  Callback& operator=(const Callback&) noexcept { return *this; }

  virtual void on_train_begin(const Logs&) {}
  virtual void on_train_end(const Logs&) {}
  virtual void on_test_begin(const Logs&) {}
  virtual void on_test_end(const Logs&) {}
  virtual void on_predict_begin(const Logs&) {}
  virtual void on_predict_end(const Logs&) {}
  virtual void on_epoch_begin(int /*epoch*/, const Logs&) {}
  virtual void on_epoch_end(int /*epoch*/, const Logs&) {}
  virtual void on_train_batch_begin(std::size_t /*batch*/, const Logs&) {}
  virtual void on_train_batch_end(std::size_t /*batch*/, const Logs&) {}
  virtual void on_test_batch_begin(std::size_t /*batch*/, const Logs&) {}
  virtual void on_test_batch_end(std::size_t /*batch*/, const Logs&) {}
  virtual void on_predict_batch_begin(std::size_t /*batch*/, const Logs&) {}
  virtual void on_predict_batch_end(std::size_t /*batch*/, const Logs&) {}

  /// Called within a run of an elastic job, in each process that took part before, after workers
  /// were lost or have joined; see docs/elastic.md.
  virtual void on_workers_change(const WorkersChange&) {}

  /// Whether on_epoch_end may add a value of this name with `control().log`. If no callback of a
  /// fit may, names that fit does not log are reported before training.
  virtual bool may_log(std::string_view /*name*/) const { return true; }

  /// Name of this callback's state in a checkpoint; empty, the default: it has no state. A callback
  /// with a state overrides this function and the next two.
  virtual std::string_view state_name() const { return {}; }
  /// Writes the state between two steps, or after an epoch. Called in every process.
  virtual void save_state(CallbackState&) const {}
  /// Restores the state of a run that continues from a checkpoint. Called after on_train_begin and,
  /// if the run continues within an epoch, after its on_epoch_begin. \throws UsageError if the
  /// state lacks a value.
  virtual void load_state(const CallbackState&) {}

  /// Called by the training loop before a run with the run's control, and after the run with the
  /// returned previous one, since a callback may call evaluate. \returns the
  /// previous control.
  TrainingControl* set_control(TrainingControl* control) {
    return std::exchange(control_, control);
  }
  /// The control of the current run. \throws UsageError outside of a run.
  LOCKSTEP_DECL TrainingControl& control() const;
  /// Shorthand for `control().params()`.
  const TrainingParams& params() const { return control().params(); }

 private:
  TrainingControl* control_ = nullptr;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/concepts/callback.ipp"
#endif
