#pragma once

#include "lockstep/training/report/start_line.hpp"

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

std::string start_line(std::string_view strategy, std::size_t replicas, std::size_t virtual_shards,
                       std::size_t batch) {
  const std::size_t slices = virtual_shards > 0 ? virtual_shards : replicas;
  const std::size_t larger = batch % slices, size = batch / slices;
  std::string line = format_text("{}: {} replicas", strategy, replicas);
  if (virtual_shards > 0) line += format_text(", {} virtual shards", virtual_shards);
  line += format_text("; of a batch of {} examples ", batch);
  if (larger == 0) return line += format_text("each gets {}", size);
  return line +=
         format_text("{}{}{} and {}{}{}", larger, larger == 1 ? " gets " : " get ", size + 1,
                     slices - larger, slices - larger == 1 ? " gets " : " get ", size);
}

std::string resume_line(std::string_view directory, std::uint64_t steps, int epochs, bool has_ended,
                        bool is_over) {
  if (!has_ended && !is_over)
    return format_text("checkpoint {}: training continues after {} steps, in epoch {}", directory,
                       steps, epochs + 1);
  return format_text(
      "checkpoint {}: training ended after {} steps and {} epochs; {}", directory, steps, epochs,
      has_ended ? "use another directory to train again"
                : "use more epochs to continue, or another directory to train again");
}

std::string rounding_line(std::string_view directory, std::string_view notes) {
  return format_text("checkpoint {}: results continue up to rounding only: {}", directory, notes);
}

std::string other_rate_line(std::uint64_t step, double own, double used) {
  return format_text(
      "learning rate: in step {} the function of this worker gives {}, and that of rank 0 gives "
      "{}; all workers use that of rank 0 in every step",
      step, shortest_number(own), shortest_number(used));
}

}  // namespace lockstep::detail
