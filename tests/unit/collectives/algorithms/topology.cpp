#include "lockstep/collectives/algorithms/topology.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

using lockstep::detail::peers_of;
using lockstep::detail::Topology;
using lockstep::detail::tree_place;
using lockstep::detail::TreePlace;

TEST_CASE("the tree has each rank once, in segments that begin with their leader") {
  for (const std::size_t size : {1u, 2u, 3u, 5u, 8u, 17u, 100u, 256u, 1000u}) {
    CAPTURE(size);
    std::size_t edges = 0;
    for (std::size_t rank = 0; rank < size; ++rank) {
      const TreePlace place = tree_place(rank, size);
      CHECK(place.parent.has_value() == (rank > 0));
      std::size_t next = rank + 1;
      for (const TreePlace::Child& child : place.children) {
        CHECK(child.rank == next);
        CHECK(tree_place(child.rank, size).parent == rank);
        CHECK(tree_place(child.rank, size).last == child.last);
        next = child.last;
        ++edges;
      }
      CHECK(next == place.last);
    }
    CHECK(edges == size - 1);
  }
}

TEST_CASE("peers know each other, and connections along a tree grow with the logarithm") {
  for (const Topology topology : {Topology::direct, Topology::tree})
    for (const std::size_t size : {1u, 2u, 3u, 8u, 50u, 300u}) {
      CAPTURE(size);
      std::size_t ends = 0;
      bool mutual = true;
      for (std::size_t rank = 0; rank < size; ++rank) {
        const std::vector<std::size_t> peers = peers_of(rank, size, topology);
        ends += peers.size();
        for (const std::size_t peer : peers) {
          if (size > 50) continue;
          const auto theirs = peers_of(peer, size, topology);
          mutual = mutual && std::count(theirs.begin(), theirs.end(), rank) == 1;
        }
        if (topology == Topology::tree) CHECK(peers.size() <= 11);  // 2 + log2(300)
      }
      CHECK(mutual);
      if (topology == Topology::direct) CHECK(ends == size * (size - 1));
      if (topology == Topology::tree) CHECK(ends <= 4 * size);  // two connections a worker
    }
}
