/// \file
/// Machines, simulated by a shared memory each and connected sockets between them.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/collectives/machine_group.hpp"
#include "lockstep/collectives/shared_memory/shared_memory_group.hpp"
#include "tcp_places.hpp"

namespace machine_test {

using lockstep::MachineGroup;
using lockstep::MachineLayout;
using lockstep::SharedMemory;
using lockstep::SharedMemoryGroup;
using lockstep::SumOrder;
using lockstep::TcpMesh;
using lockstep::detail::Topology;

inline SharedMemory::Options memory_for(std::size_t count) {
  return {.bytes = SharedMemoryGroup::bytes(count, 1),
          .heap = SharedMemoryGroup::heap_bytes(count, 1),
          .run = "a test",
          .name = "machine",
          .key = "a key"};
}

/// The meshes of all lanes, by rank; null for ranks that are in none.
inline std::vector<std::shared_ptr<TcpMesh>> connect_lanes(const MachineLayout& layout,
                                                           Topology topology, bool sealed) {
  std::vector<std::shared_ptr<TcpMesh>> meshes(layout.size());
  for (std::size_t l = 0; l < layout.lanes(); ++l) {
    const std::vector<std::size_t> ranks = layout.lane(l);
    auto connections = tcp_test::connect_all(ranks.size(), topology, 1, sealed);
    for (std::size_t m = 0; m < ranks.size(); ++m)
      meshes[ranks[m]] = std::make_shared<TcpMesh>(
          TcpMesh::Options{
              .rank = m, .size = ranks.size(), .channels = 1, .topology = topology, .names = ranks},
          std::move(connections[m]));
  }
  return meshes;
}

/// All members of a group in one process: a maker for the contract of collectives. `counts` gives the
/// processes of each machine for a size.
template <SumOrder sum_order, auto counts, Topology topology = Topology::direct,
          bool sealed = false>
class Machines {
 public:
  static constexpr std::size_t max_size = 8;
  static constexpr SumOrder order = sum_order;
  static constexpr bool can_end = true;
  static constexpr bool sees_neighbors = true;

  Machines(std::size_t size, std::chrono::milliseconds timeout) : layout{counts(size)} {
    meshes = connect_lanes(layout, topology, sealed);
    for (std::size_t r = 0; r < size; ++r) {
      const std::size_t machine = layout.machine_of(r);
      if (r == layout.first(machine))
        memories.push_back(SharedMemory::create(memory_for(layout.counts[machine])));
      members_.emplace_back(memories.back(), meshes[r], layout, r,
                            lockstep::GroupOptions{.timeout = timeout, .order = order});
    }
  }
  std::size_t size() const { return members_.size(); }
  MachineGroup& member(std::size_t rank) { return members_[rank]; }

  MachineLayout layout;
  std::vector<std::shared_ptr<SharedMemory>> memories;
  std::vector<std::shared_ptr<TcpMesh>> meshes;

 private:
  std::vector<MachineGroup> members_;
};

}  // namespace machine_test
