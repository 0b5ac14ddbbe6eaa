/// \file
/// Includes all callbacks.
#pragma once

#include "lockstep/training/callbacks/backup_and_restore.hpp"
#include "lockstep/training/callbacks/csv_logger.hpp"
#include "lockstep/training/callbacks/early_stopping.hpp"
#include "lockstep/training/callbacks/lambda_callback.hpp"
#include "lockstep/training/callbacks/learning_rate_scheduler.hpp"
#include "lockstep/training/callbacks/model_checkpoint.hpp"
#include "lockstep/training/callbacks/progbar_logger.hpp"
#include "lockstep/training/callbacks/reduce_lr_on_plateau.hpp"
#include "lockstep/training/callbacks/swap_ema_weights.hpp"
#include "lockstep/training/callbacks/terminate_on_nan.hpp"
#include "lockstep/training/callbacks/trace.hpp"
