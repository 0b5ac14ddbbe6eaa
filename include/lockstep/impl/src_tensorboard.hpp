/// \file
/// All definitions of the component tensorboard. Include it in exactly one source file of a program
/// whose units all define LOCKSTEP_SEPARATE_COMPILATION; see src.hpp.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/src_tensorboard.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/tensorboard/event.ipp"
#include "lockstep/tensorboard/event_file.ipp"
#include "lockstep/tensorboard/event_writer.ipp"
#include "lockstep/tensorboard/model_graph.ipp"
#include "lockstep/tensorboard/png.ipp"
#include "lockstep/tensorboard/tensorboard_callback.ipp"
