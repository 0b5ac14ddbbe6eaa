/// \file
/// The device of a unit. The build compiles NAME.cpp once for each precision: for the Cpu, and with
/// LOCKSTEP_CUDA for GPUs. No other file of the examples' support names a device.
#pragma once

#ifdef LOCKSTEP_CUDA
#include <lockstep/cuda.hpp>
#else
#include <lockstep/cpu.hpp>
#endif

#ifndef LOCKSTEP_PRECISION
#define LOCKSTEP_PRECISION float32
#endif

namespace support {

/// The device of each value of --precision.
namespace precision {
#ifdef LOCKSTEP_CUDA
using float32 = lockstep::Cuda;
using tf32 = lockstep::CudaTf32;
using mixed_bfloat16 = lockstep::CudaBFloat16;
using mixed_float16 = lockstep::CudaFloat16;
#else
using float32 = lockstep::Cpu;
using mixed_bfloat16 = lockstep::CpuBFloat16;
#endif
}  // namespace precision

using Device = precision::LOCKSTEP_PRECISION;

}  // namespace support
