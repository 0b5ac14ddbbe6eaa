/// \file
/// Continues a run after a crash, under Keras' name. Invariant: the same as FitOptions::checkpoint,
/// which does the work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/training/checkpoint/checkpoint_writer.hpp"

namespace lockstep {

/// Keras' BackupAndRestore: `fit` saves a checkpoint, and a program that is started again continues
/// from it with the next step. In Keras the interrupted epoch begins again.
///
/// FitOptions::checkpoint has more options; use one of the two. Source:
/// keras/src/callbacks/backup_and_restore.py.
/// \code
///   model.fit(train, {.epochs = 100, .callbacks = {
///       lockstep::BackupAndRestore{.backup_dir = "backup", .save_freq = 500}}});
/// \endcode
struct BackupAndRestore {
  std::string backup_dir;
  std::uint64_t save_freq = 0;  ///< steps from one checkpoint to the next; 0: one after each epoch
  /// Keep the checkpoint before the newest one too, for the case that the newest one is damaged.
  bool double_checkpoint = false;
  bool delete_checkpoint = true;  ///< remove the checkpoints when training has ended

  /// The callback for `fit`. \throws UsageError if backup_dir is empty.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/backup_and_restore.ipp"
#endif
