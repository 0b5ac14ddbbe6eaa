/// \file
/// Checkpoints: FitOptions::checkpoint, Model::save_checkpoint and load_checkpoint, and the callbacks
/// ModelCheckpoint and BackupAndRestore. Include lockstep.hpp as well.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/training/callbacks/backup_and_restore.hpp"
#include "lockstep/training/callbacks/model_checkpoint.hpp"
#include "lockstep/training/checkpoint/model_checkpoints.hpp"
