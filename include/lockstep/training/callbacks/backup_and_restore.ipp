#pragma once

#include "lockstep/training/callbacks/backup_and_restore.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/training/checkpoint/checkpoint_request.hpp"

namespace lockstep {

BackupAndRestore::operator std::shared_ptr<Callback>() const {
  if (backup_dir.empty())
    throw UsageError("BackupAndRestore: backup_dir is empty; set it to a directory");
  return std::make_shared<detail::CheckpointRequest>(
      CheckpointOptions{.directory = backup_dir,
                        .every = save_freq,
                        .keep = std::size_t{double_checkpoint ? 2u : 1u}},
      delete_checkpoint);
}

}  // namespace lockstep
