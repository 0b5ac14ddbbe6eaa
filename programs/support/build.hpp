/// \file
/// The types that the build selects for a unit: its device, by LOCKSTEP_PRECISION and LOCKSTEP_CUDA,
/// and its strategy, by LOCKSTEP_MIRRORED, LOCKSTEP_MULTI_WORKER or LOCKSTEP_PARAMETER_SERVER. No
/// other file of support/ names a device, and only workers.hpp and servers.hpp include the cluster.
#pragma once

#include <lockstep/lockstep.hpp>

#ifdef LOCKSTEP_CUDA
#include <lockstep/cuda.hpp>
#else
#include <lockstep/cpu.hpp>
#endif
#ifdef LOCKSTEP_MULTI_WORKER
#include "support/workers.hpp"
#endif
#ifdef LOCKSTEP_PARAMETER_SERVER
#include "support/servers.hpp"
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

#if defined(LOCKSTEP_MULTI_WORKER)
#ifdef LOCKSTEP_CUDA
using Strategy = lockstep::MultiWorkerMirrored<Device>;  // NAME_multi_worker
#else
using Strategy = lockstep::MultiWorkerMirrored<Device, lockstep::Tcp, lockstep::Elastic>;
#endif
#elif defined(LOCKSTEP_PARAMETER_SERVER)
// NAME_parameter_server
using Strategy = lockstep::ParameterServer<Device, lockstep::Tcp, lockstep::Elastic>;
#elif defined(LOCKSTEP_MIRRORED)
using Strategy = lockstep::Mirrored<Device>;  // NAME_mirrored
#else
using Strategy = lockstep::OneDevice<Device>;  // NAME
#endif

}  // namespace support
