/// \file
/// Event files for TensorBoard: the callback `ls::TensorBoard`, and `ls::EventWriter` for custom
/// values. Include lockstep.hpp as well. Requires protozero (lockstep::tensorboard).
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/tensorboard/event_writer.hpp"
#include "lockstep/tensorboard/tensorboard_callback.hpp"
