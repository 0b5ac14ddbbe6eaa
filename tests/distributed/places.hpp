/// \file
/// A process that takes part in the start of a job by hand, up to the exchange of the places.
#pragma once

#include <chrono>
#include <string>

#include "lockstep/cluster/rendezvous/gather_texts.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/strategies/job/worker_place.hpp"

namespace distributed {

/// Exchanges the places as MultiWorkerMirrored does, with one replica on this machine.
inline void send_place(lockstep::Rendezvous& job) {
  auto own = lockstep::detail::WorkerPlace::here(1, 1, false);
  own.machine += "@127.0.0.1";
  lockstep::detail::gather_texts(job, "places", own.text(), std::chrono::seconds(10));
}

}  // namespace distributed
