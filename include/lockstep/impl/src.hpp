/// \file
/// The definitions of the component core, for one source file of a program whose units all define
/// LOCKSTEP_SEPARATE_COMPILATION.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error "lockstep/impl/src.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/core/cpu_quota.ipp"
#include "lockstep/data/loader.ipp"

#ifndef LOCKSTEP_IN_PARTS
#include "lockstep/impl/core_reference.hpp"
#endif
