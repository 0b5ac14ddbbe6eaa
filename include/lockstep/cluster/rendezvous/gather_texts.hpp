/// \file
/// The texts of all processes of a job. Invariant: each process sends as many requests as the
/// longest text needs, however many processes there are.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep {

class Rendezvous;

namespace detail {

/// The texts that all processes pass, by rank. Collective. `name`: see Rendezvous::gather, which does
/// the work: in one round if the texts have 60 KiB together. \throws as Rendezvous::gather;
/// ClusterError if a process of another version takes part.
LOCKSTEP_COLD_DECL std::vector<std::string> gather_texts(Rendezvous& job, std::string_view name,
                                                         std::string_view text,
                                                         std::chrono::milliseconds deadline);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/gather_texts.ipp"
#endif
