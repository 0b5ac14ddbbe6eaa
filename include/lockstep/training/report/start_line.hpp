/// \file
/// What `fit` says before the first step of several replicas.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/text.hpp"

namespace lockstep::detail {

/// "mirrored: 3 replicas; of a batch of 64 examples 1 gets 22 and 2 get 21". With virtual shards it
/// is these that get examples.
[[gnu::cold]] inline std::string start_line(std::string_view strategy, std::size_t replicas,
                                            std::size_t virtual_shards, std::size_t batch) {
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
