#pragma once

#include "lockstep/training/report/start_line.hpp"

#include "lockstep/core/text.hpp"

namespace lockstep::detail {

std::string start_line(std::string_view strategy, std::size_t replicas, std::size_t virtual_shards,
                       std::size_t batch) {
  const std::size_t slices = virtual_shards > 0 ? virtual_shards : replicas;
  const std::size_t larger = batch % slices, size = batch / slices;
  std::string line = text({strategy, ": ", replicas, " replicas"});
  if (virtual_shards > 0) line += text({", ", virtual_shards, " virtual shards"});
  line += text({"; of a batch of ", batch, " examples "});
  if (larger == 0) return line += text({"each gets ", size});
  return line += text({larger, larger == 1 ? " gets " : " get ", size + 1, " and ", slices - larger,
                       slices - larger == 1 ? " gets " : " get ", size});
}

}  // namespace lockstep::detail
