/// \file
/// The collective between processes on several machines, of which at least one has several processes.
/// Invariants: data of a machine leaves it once; all members get the same bits, those of ThreadGroup;
/// what ends the operations of a member ends those of all members that wait for it, with one cause.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/collectives/machine_layout.hpp"
#include "lockstep/collectives/shared_memory/shared_memory.hpp"
#include "lockstep/collectives/tcp/tcp_mesh.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// This process' member of a group that exchanges through shared memory within a machine and over
/// TCP between machines. An abort ends the operations of this group on this machine, and of all
/// groups of the mesh.
///
/// An all-reduce of many bytes is cut into a slice per lane. Process l of each machine reads slice l
/// of all processes of its machine, adds it over the machines, and writes the sum to the processes of
/// its machine:
///
///     machine 0   rank 0: slice 0 of 0, 1 ──┐   rank 1: slice 1 of 0, 1 ──┐
///     machine 1   rank 2: slice 0 of 2, 3 ──┘   rank 3: slice 1 of 2, 3 ──┘
///
/// With SumOrder::ranks the sum of a slice travels from machine to machine, each of which adds its
/// processes' values one after the other, and the result travels back; with SumOrder::tree the
/// machines add their subtrees (ChannelGroup). A few bytes are gathered by the first process of each
/// machine, which adds all of them. Elements in memory of `exchange_allocator` are read and written
/// where they lie; others are copied through the shared memory.
///
/// \throws what SharedMemoryGroup and TcpGroup throw; errors name ranks of the job. A timeout may name
/// a process that itself waits for a late one on another machine; the rendezvous names the late one.
/// \code
///   lockstep::MachineGroup group(memory, mesh, {{2, 2}}, 3);
///   group.all_reduce(gradients, n, sums, 2);
/// \endcode
class MachineGroup : public ProcessGroup {
 public:
  /// `memory` is that of the machine, for as many members as it has processes (SharedMemoryGroup's
  /// sizes), with a heap. `mesh` connects the member's lane, with the ranks of the layout as names;
  /// null if the member is in none. \throws UsageError if the layout does not keep the order, or
  /// memory and mesh do not fit; Error if there is not enough memory.
  LOCKSTEP_COLD_DECL MachineGroup(std::shared_ptr<SharedMemory> memory,
                                  std::shared_ptr<TcpMesh> mesh, MachineLayout layout,
                                  std::size_t rank, const Options& options = {});

 private:
  struct Member;
  LOCKSTEP_COLD_DECL static std::shared_ptr<Member> member(std::shared_ptr<SharedMemory> memory,
                                                           std::shared_ptr<TcpMesh> mesh,
                                                           MachineLayout layout, std::size_t rank,
                                                           const Options& options);
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/machine_group.ipp"
#endif
