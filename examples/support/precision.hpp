/// \file
/// The device of a unit: the build compiles NAME.cpp once for each precision.
#pragma once

#include <lockstep/cpu.hpp>

#ifndef LOCKSTEP_PRECISION
#define LOCKSTEP_PRECISION float32
#endif

namespace support {

/// The devices of --precision, under its values.
namespace precision {
using float32 = lockstep::Cpu;
using mixed_bfloat16 = lockstep::CpuBFloat16;
}  // namespace precision

using Device = precision::LOCKSTEP_PRECISION;

}  // namespace support
