/// \file
/// The callback `ls::Trace`: a timeline of some training steps. Include lockstep.hpp as well.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/training/callbacks/trace_callback.hpp"
#include "lockstep/training/report/step_recorder.hpp"
