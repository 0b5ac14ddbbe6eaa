/// \file
/// Includes the callbacks that need no further feature: BackupAndRestore and
/// ModelCheckpoint come with <lockstep/checkpoints.hpp>, Trace with <lockstep/trace.hpp>, TensorBoard
/// with <lockstep/tensorboard.hpp>.
#pragma once

#include "lockstep/training/callbacks/csv_logger.hpp"
#include "lockstep/training/callbacks/early_stopping.hpp"
#include "lockstep/training/callbacks/lambda_callback.hpp"
#include "lockstep/training/callbacks/learning_rate_scheduler.hpp"
#include "lockstep/training/callbacks/progbar_logger.hpp"
#include "lockstep/training/callbacks/reduce_lr_on_plateau.hpp"
#include "lockstep/training/callbacks/swap_ema_weights.hpp"
#include "lockstep/training/callbacks/terminate_on_nan.hpp"
#include "lockstep/training/callbacks/unfreeze.hpp"
