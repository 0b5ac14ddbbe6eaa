/// \file
/// All optimizers and schedules.
#pragma once

#include "lockstep/optimizers/adadelta.hpp"
#include "lockstep/optimizers/adafactor.hpp"
#include "lockstep/optimizers/adagrad.hpp"
#include "lockstep/optimizers/adam.hpp"
#include "lockstep/optimizers/adamax.hpp"
#include "lockstep/optimizers/adamw.hpp"
#include "lockstep/optimizers/ftrl.hpp"
#include "lockstep/optimizers/lamb.hpp"
#include "lockstep/optimizers/lion.hpp"
#include "lockstep/optimizers/muon.hpp"
#include "lockstep/optimizers/nadam.hpp"
#include "lockstep/optimizers/rmsprop.hpp"
#include "lockstep/optimizers/schedules/schedules.hpp"
#include "lockstep/optimizers/sgd.hpp"
