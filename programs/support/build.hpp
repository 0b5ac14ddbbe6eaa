/// \file
/// The types that the build selects for a unit: its device, by LOCKSTEP_PRECISION and LOCKSTEP_CUDA,
/// its strategy, by LOCKSTEP_MIRRORED, LOCKSTEP_MULTI_WORKER or LOCKSTEP_PARAMETER_SERVER, and the
/// strategy's update policy, by LOCKSTEP_POLICY. No other file of support/ names a device, and only
/// workers.hpp and servers.hpp include the cluster.
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
#ifdef LOCKSTEP_POLICY
#include <lockstep/sharded.hpp>
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
#ifdef LOCKSTEP_CUDA                                     // cannot be elastic
using Replicas = lockstep::MultiWorkerMirrored<Device>;  // NAME_multi_worker
#else
using Replicas = lockstep::MultiWorkerMirrored<Device, lockstep::Tcp, lockstep::Elastic>;
#endif
#elif defined(LOCKSTEP_PARAMETER_SERVER)
// NAME_parameter_server
using Replicas = lockstep::ParameterServer<Device, lockstep::Tcp, lockstep::Elastic>;
#elif defined(LOCKSTEP_MIRRORED)
using Replicas = lockstep::Mirrored<Device>;  // NAME_mirrored
#else
using Replicas = lockstep::OneDevice<Device>;  // NAME
#endif

#ifdef LOCKSTEP_POLICY
/// The policy of each value of --update but `replicated`, which is the default of a strategy.
namespace update {
using sharded = lockstep::Sharded;
}
using Strategy = lockstep::UpdatedBy<Replicas, update::LOCKSTEP_POLICY>;
#else
using Strategy = Replicas;
#endif

}  // namespace support
