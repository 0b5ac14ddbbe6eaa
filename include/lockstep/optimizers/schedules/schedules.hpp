/// \file
/// All schedules.
#pragma once

#include "lockstep/optimizers/schedules/cosine_decay.hpp"
#include "lockstep/optimizers/schedules/cosine_decay_restarts.hpp"
#include "lockstep/optimizers/schedules/exponential_decay.hpp"
#include "lockstep/optimizers/schedules/inverse_time_decay.hpp"
#include "lockstep/optimizers/schedules/piecewise_constant_decay.hpp"
#include "lockstep/optimizers/schedules/polynomial_decay.hpp"
#include "lockstep/optimizers/schedules/warmup.hpp"
