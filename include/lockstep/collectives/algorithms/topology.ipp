#pragma once

#include "lockstep/collectives/algorithms/topology.hpp"

#include <algorithm>

namespace lockstep::detail {

TreePlace tree_place(std::size_t rank, std::size_t size) {
  TreePlace place;
  std::size_t first = 0, last = size;
  while (first != rank) {
    const std::size_t middle = first + (last - first + 1) / 2;
    if (rank < middle) {
      last = middle;
    } else {
      place.parent = first;
      first = middle;
    }
  }
  place.last = last;
  while (last - first > 1) {
    const std::size_t middle = first + (last - first + 1) / 2;
    place.children.push_back({middle, last});
    last = middle;
  }
  std::reverse(place.children.begin(), place.children.end());
  return place;
}

std::vector<std::size_t> peers_of(std::size_t rank, std::size_t size, Topology topology) {
  std::vector<std::size_t> peers;
  if (topology == Topology::direct) {
    for (std::size_t r = 0; r < size; ++r)
      if (r != rank) peers.push_back(r);
    return peers;
  }
  const TreePlace place = tree_place(rank, size);
  if (rank > 0) peers.push_back(rank - 1);
  if (rank + 1 < size) peers.push_back(rank + 1);
  if (place.parent) peers.push_back(*place.parent);
  for (const TreePlace::Child& child : place.children) peers.push_back(child.rank);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace lockstep::detail
