/// \file
/// What user code may hook into `fit`, `evaluate` and `predict`. Invariants: every hook is virtual
/// and does nothing by default, so an `override` of a misspelt hook does not compile; a control is
/// set exactly while a run lasts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/logs.hpp"

namespace lockstep {

/// The numbers of a run, known before its first step.
struct TrainingParams {
  int epochs = 1;         ///< number of the last epoch, counted from 1
  int initial_epoch = 0;  ///< first epoch, counted from 0
  std::optional<std::uint64_t>
      steps;                         ///< of one epoch, evaluate or predict; nothing: not known yet
  std::uint64_t first_step = 0;      ///< number of the run's first step, counted from 0
  std::size_t batch_size = 0;        ///< global batch
  int verbose = 1;                   ///< Keras' 0 silent, 1 bar, 2 one line an epoch
  std::vector<std::string> metrics;  ///< names in the logs, "loss" first
  int rank = 0;                      ///< of this process in the job
  int replicas = 1;                  ///< of the whole job
};

/// What a callback may do to the run it watches. The training loop implements it.
class TrainingControl {
 public:
  LOCKSTEP_COLD_DECL virtual ~TrainingControl();
  /// Ends training after the current batch (Keras' `model.stop_training = True`).
  virtual void stop_training() = 0;
  virtual bool stop_requested() const = 0;
  /// Rate of the next step.
  virtual double learning_rate() const = 0;
  /// Replaces the rate, and a schedule, from the next step on. In a job of several processes it
  /// is enough that one of them sets it; if several do, the first one's counts.
  virtual void set_learning_rate(double rate) = 0;
  /// In on_epoch_end: adds a number to the logs of this epoch, for the callbacks that follow, the
  /// progress and the history, after this one returns. \throws UsageError elsewhere.
  virtual void log(std::string_view name, double value) = 0;
  /// A copy of all parameters, to be given back to `set_weights`.
  virtual std::vector<std::byte> weights() const = 0;
  /// To be called in all processes alike: `fit` refuses replicas that differ when it begins.
  /// \throws UsageError if `weights` are of another size than this model's.
  virtual void set_weights(std::span<const std::byte> weights) = 0;
  /// Whether the gradients of the last step and the weights after it are finite, by one pass over
  /// them. A finite loss does not imply this: a ReLU of oneDNN or cuDNN maps NaN to 0. Gradients of
  /// a device that scales the loss are left out, since it skips the updates that overflow.
  virtual bool is_finite() const = 0;
  /// Names what of the last step is NaN or infinite: which replica's loss, which parameters'
  /// gradients, which weights. Empty if nothing is.
  virtual std::string not_finite() const = 0;
  virtual const TrainingParams& params() const = 0;
};

/// Base class of callbacks, with Keras' hooks. Epochs and batches are counted from 0.
///
/// Order in `fit`: train_begin, then for each epoch {epoch_begin, for each batch
/// {train_batch_begin, train_batch_end} (for each execution of several, the first one's number and
/// the last one's), with validation {test_begin, for each batch
/// {test_batch_begin, test_batch_end}, test_end}, epoch_end}, then train_end. `evaluate` and
/// `predict` call their own hooks only. An exception from a hook ends the run. Source:
/// keras/src/callbacks/callback.py.
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

  /// Called by the training loop before a run, and after it with what it returned: a callback may
  /// itself start an evaluation. \returns the control before.
  TrainingControl* set_control(TrainingControl* control) {
    return std::exchange(control_, control);
  }
  /// The run being watched. \throws UsageError outside of a run.
  LOCKSTEP_DECL TrainingControl& control() const;
  /// Short for `control().params()`.
  const TrainingParams& params() const { return control().params(); }

 private:
  TrainingControl* control_ = nullptr;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/concepts/callback.ipp"
#endif
