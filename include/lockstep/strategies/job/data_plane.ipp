#pragma once

#include "lockstep/strategies/job/data_plane.hpp"

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/strategies/job/shared_job.hpp"

namespace lockstep {

Rendezvous& JobLinks::rendezvous() const { return session.rendezvous(); }

std::size_t JobLinks::rank() const { return rendezvous().rank(); }

std::string JobLinks::key(std::string_view what) const { return session.name(what); }

}  // namespace lockstep
