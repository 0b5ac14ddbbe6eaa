/// \file
/// Options of the checkpoints of a `fit`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/training/callbacks/monitor.hpp"

namespace lockstep {

/// When and where `fit` saves checkpoints, and whether it continues from one.
///
/// A checkpoint holds everything on which the next step depends: weights, running statistics, the
/// optimizer's buffers, averages, the loss scale, the learning rate, the position in the data, the
/// logs of the epoch and the state of the callbacks. A run that is killed and continues makes the
/// same steps as one that was never interrupted; with as many replicas, or with `virtual_shards` on
/// any number of them, it gets the same bits. Only the chief reads and writes: the processes need
/// no common file system. Besides the regular ones, `fit` saves a checkpoint when its stop token
/// ends it. The program includes <lockstep/checkpoints.hpp>; without it `fit` throws UsageError
/// before the first step.
/// \code
///   model.fit(train, {.epochs = 100, .checkpoint = {.directory = "run1", .every = 500}});
/// \endcode
struct CheckpointOptions {
  /// A directory for this run alone, created if only its last component is missing. Empty: no
  /// checkpoints.
  std::string directory{};
  std::uint64_t every = 0;  ///< steps from one to the next; 0: one at the end of each epoch
  /// Continue from the newest undamaged checkpoint, if there is one. Without it a directory that
  /// has checkpoints is refused.
  bool resume = true;
  std::size_t keep = 3;  ///< newest ones to keep; 0: all
  /// Also saves at the end of each epoch, and keeps the one with the best value of this name in the
  /// logs, such as "val_loss".
  std::string best{};
  MonitorModeOption mode = MonitorMode::automatic;  ///< of `best`
  /// Write in a thread while training goes on. A save waits for the one before it.
  bool asynchronous = true;
  /// A checkpoint that cannot be written ends training with its error; otherwise the error is
  /// logged and training goes on.
  bool required = false;

  explicit operator bool() const { return !directory.empty(); }
};

}  // namespace lockstep
