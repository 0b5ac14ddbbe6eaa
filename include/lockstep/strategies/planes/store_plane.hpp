/// \file
/// The data plane of devices that exchange over connections of their own, as GPUs do over NCCL.
/// Invariant: all ranks choose alike whether the CPUs need connections too.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/strategies/job/data_plane.hpp"
#include "lockstep/strategies/job/worker_place.hpp"

namespace lockstep {

/// The workers open no connection for data: the devices exchange what is large, and what is small
/// travels over the rendezvous (StoreGroup). Where the devices cannot, the same as Tcp: two replicas
/// on one GPU, a worker without NCCL, or sums in the order of a tree, which NCCL does not have.
/// \code
///   ls::MultiWorkerMirrored<ls::Cuda>{}           // over ls::StorePlane
///   ls::MultiWorkerMirrored<ls::Cuda, ls::Tcp>{}  // small data over connections between the CPUs
/// \endcode
struct StorePlane {
  static constexpr std::string_view name = "store";
  LOCKSTEP_COLD_DECL static JobGroups connect(const JobLinks& links);
};
static_assert(DataPlane<StorePlane>);

namespace detail {

/// Whether the devices of all replicas can exchange without the CPUs: each replica has its own
/// device, all devices are connected, and the additions need no order.
LOCKSTEP_COLD_DECL bool devices_exchange(std::span<const WorkerPlace> places, SumOrder order);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/planes/store_plane.ipp"
#endif
