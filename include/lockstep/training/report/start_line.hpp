/// \file
/// The log line with which `fit` begins if there are several replicas.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// How a batch is divided: "mirrored: 3 replicas; of a batch of 64 examples 1 gets 22 and 2 get
/// 21". With virtual shards the counts refer to shards.
LOCKSTEP_COLD_DECL std::string start_line(std::string_view strategy, std::size_t replicas,
                                          std::size_t virtual_shards, std::size_t batch);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/start_line.ipp"
#endif
