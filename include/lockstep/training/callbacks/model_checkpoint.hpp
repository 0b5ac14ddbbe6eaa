/// \file
/// Saves the model while it trains, under names that the user chooses. Invariant: all processes of
/// a job make the same decision, since their logs are equal; only the chief writes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/training/callbacks/monitor.hpp"
#include "lockstep/training/checkpoint/checkpoint_writer.hpp"

namespace lockstep {

/// Keras' ModelCheckpoint, with its defaults.
///
/// `filepath` may contain `{epoch}`, counted from 1, `{batch}` within the epoch and the names of
/// logs, each with a format: `"epoch-{epoch:02d}-{val_loss:.2f}"`. With `save_weights_only` it is a
/// safetensors file for Model::load_weights. Otherwise it is the directory of a checkpoint for
/// Model::load_checkpoint, which the next save under the same name replaces. To continue a run
/// after a crash, use FitOptions::checkpoint or BackupAndRestore instead.
///
/// Before the first step `fit` makes missing folders, as Keras does, and checks that they can be
/// written to, and the names and formats. A name that only another callback can log is nan in the
/// path of an epoch without it, and so is val_... in an epoch without validation; Keras ends the
/// training there.
///
/// With `save_best_only` only those are saved whose monitored value is better than all before and
/// than `initial_value_threshold`. An epoch without the value, such as one without validation,
/// saves nothing; Keras 3.15 saves it, over the best one if the name is the same. NaN is never the
/// best value, as in EarlyStopping. Combines with
/// `save_freq`, where Keras fails. A callback that serves several fits keeps its best value and its
/// count of steps. Source: keras/src/callbacks/model_checkpoint.py.
/// \code
///   model.fit(train, test, {.epochs = 100, .callbacks = {lockstep::ModelCheckpoint{
///       .filepath = "best.safetensors", .monitor = "val_accuracy",
///       .save_best_only = true, .save_weights_only = true}}});
/// \endcode
struct ModelCheckpoint {
  std::string filepath;
  std::string monitor = "val_loss";
  bool verbose = false;  ///< log each save
  bool save_best_only = false;
  bool save_weights_only = false;
  MonitorModeOption mode = MonitorMode::automatic;
  std::uint64_t save_freq = 0;  ///< steps from one save to the next; 0: one after each epoch
  std::optional<double> initial_value_threshold{};

  /// The callback for `fit`. \throws UsageError if an option is invalid. Before the first step
  /// `fit` throws UsageError if the mode is automatic and unknown for `monitor`, or if `filepath`
  /// contains a wrong format or a name that neither `fit` nor a callback logs; FileError if a
  /// folder cannot be made or written to.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/model_checkpoint.ipp"
#endif
