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

}  // namespace lockstep::detail
