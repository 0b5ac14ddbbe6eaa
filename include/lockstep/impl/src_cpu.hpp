/// \file
/// All definitions of the component cpu. Include it in exactly one source file of a program whose
/// units all define LOCKSTEP_SEPARATE_COMPILATION; see src.hpp.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error "lockstep/impl/src_cpu.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/devices/cpu/device.ipp"
#include "lockstep/devices/cpu/onednn.ipp"
#include "lockstep/devices/cpu/openmp.ipp"
#include "lockstep/devices/cpu/team.ipp"
#include "lockstep/devices/cpu/team_waits.ipp"

#ifndef LOCKSTEP_IN_PARTS
#include "lockstep/impl/cpu_bfloat16.hpp"
#include "lockstep/impl/cpu_float.hpp"
#endif
