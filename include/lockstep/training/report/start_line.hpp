/// \file
/// The log lines with which `fit` begins if there are several replicas, or a checkpoint, and the
/// one about schedules that differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// How a batch is divided: "mirrored: 3 replicas; of a batch of 64 examples 1 gets 22 and 2 get
/// 21". With virtual shards the counts refer to shards.
LOCKSTEP_COLD_DECL std::string start_line(std::string_view strategy, std::size_t replicas,
                                          std::size_t virtual_shards, std::size_t batch);

/// Where a run continues from a checkpoint. `has_ended`: a callback or the data ended the run;
/// `is_over`: no further epoch is asked for.
LOCKSTEP_COLD_DECL std::string resume_line(std::string_view directory, std::uint64_t steps,
                                           int epochs, bool has_ended, bool is_over);

/// Warns that a job continues from a checkpoint with results that are equal up to rounding, and why.
LOCKSTEP_COLD_DECL std::string rounding_line(std::string_view directory, std::string_view notes);

/// Warns that the learning rate of a step is that of rank 0, which this process' function does not
/// give.
LOCKSTEP_COLD_DECL std::string other_rate_line(std::uint64_t step, double own, double used);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/start_line.ipp"
#endif
