/// \file
/// The definitions of the component cuda, for one source file of a program whose units all define
/// LOCKSTEP_SEPARATE_COMPILATION.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/src_cuda.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/core/config.hpp"
