/// \file
/// The types that the build selects for a unit: its device, by LOCKSTEP_PRECISION and LOCKSTEP_CUDA,
/// its strategy, by LOCKSTEP_MIRRORED, LOCKSTEP_MULTI_WORKER or LOCKSTEP_PARAMETER_SERVER, and the
/// strategy's update policy, by LOCKSTEP_POLICY or LOCKSTEP_WIRE. No other file of support/ names a
/// device, and only workers.hpp and servers.hpp include the cluster.
#pragma once

#include <lockstep/lockstep.hpp>
#include <type_traits>

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
#include <lockstep/local_sgd.hpp>
#include <lockstep/sharded.hpp>
#endif
#ifdef LOCKSTEP_WIRE
#include "support/wire.hpp"
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

#ifdef LOCKSTEP_POLICY
/// The policy of each value of --update but `replicated`, which is the default of a strategy;
/// `diloco` is `local` with other numbers.
namespace update {
using sharded = lockstep::Sharded;
using local = lockstep::DiLoCo;
}  // namespace update
using Policy = update::LOCKSTEP_POLICY;
#endif

#if defined(LOCKSTEP_MULTI_WORKER)
// NAME_multi_worker
#if defined(LOCKSTEP_CUDA) || defined(LOCKSTEP_WIRE)  // cannot be elastic
using Replicas = lockstep::MultiWorkerMirrored<Device>;
#elif defined(LOCKSTEP_POLICY)
using Membership = std::conditional_t<std::is_same_v<Policy, lockstep::Sharded>, lockstep::Elastic,
                                      lockstep::FixedWorkers>;
using Replicas = lockstep::MultiWorkerMirrored<Device, lockstep::Tcp, Membership>;
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
using Strategy = lockstep::UpdatedBy<Replicas, Policy>;
#elif defined(LOCKSTEP_WIRE)
using Strategy = lockstep::UpdatedBy<Replicas, lockstep::wire::Format>;
#else
using Strategy = Replicas;
#endif

}  // namespace support
