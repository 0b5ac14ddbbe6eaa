#pragma once

#include "lockstep/training/report/start_line.hpp"

#include "lockstep/core/fmt_core.hpp"

namespace lockstep::detail {

std::string start_line(std::string_view strategy, std::size_t replicas, std::size_t virtual_shards,
                       std::size_t batch) {
  const std::size_t slices = virtual_shards > 0 ? virtual_shards : replicas;
  const std::size_t larger = batch % slices, size = batch / slices;
  std::string line = fmt::format("{}: {} replicas", strategy, replicas);
  if (virtual_shards > 0) line += fmt::format(", {} virtual shards", virtual_shards);
  line += fmt::format("; of a batch of {} examples ", batch);
  if (larger == 0) return line += fmt::format("each gets {}", size);
  return line +=
         fmt::format("{}{}{} and {}{}{}", larger, larger == 1 ? " gets " : " get ", size + 1,
                     slices - larger, slices - larger == 1 ? " gets " : " get ", size);
}

std::string resume_line(std::string_view directory, std::uint64_t steps, int epochs, bool has_ended,
                        bool is_over) {
  if (!has_ended && !is_over)
    return fmt::format("checkpoint {}: training continues after {} steps, in epoch {}", directory,
                       steps, epochs + 1);
  return fmt::format(
      "checkpoint {}: training ended after {} steps and {} epochs; {}", directory, steps, epochs,
      has_ended ? "use another directory to train again"
                : "use more epochs to continue, or another directory to train again");
}

}  // namespace lockstep::detail
