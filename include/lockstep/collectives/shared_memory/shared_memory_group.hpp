/// \file
/// The collective between processes of one machine, over memory that they share. Invariants: the
/// additions are those of ThreadGroup, so both give the same bits; no process accesses data of
/// another one, except for memory of its `exchange_allocator` during an all-reduce; every wait ends
/// by an abort in any process or at its deadline, and the group cannot be used after that;
/// operations do not allocate.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/collectives/shared_memory/shared_memory.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// This process' member of a group. Each group of a memory has its own channel, the same in all
/// processes.
///
/// Data is copied into and out of the shared memory, except for an all-reduce of more than 16 KB that
/// lies, in all members, in memory of their `exchange_allocator`: it is summed in place. If such an
/// all-reduce throws, the contents are undefined, and the memory is private to this process from
/// then on.
///
/// Nothing here detects that a process has died: its peers wait until `abort` or the timeout. Call
/// `abort` in one of them when the death is known.
///
/// \throws CollectiveTimeout if a member does not arrive for `timeout`, CollectiveAborted after an
/// abort in any process, UsageError if the members' calls differ.
/// \code
///   const lockstep::SharedMemory::Options of{
///       .bytes = lockstep::SharedMemoryGroup::bytes(size, channels),
///       .heap = lockstep::SharedMemoryGroup::heap_bytes(size, channels), .run = id, .key = secret};
///   auto memory = rank == 0 ? SharedMemory::create(of) : SharedMemory::open(place, of);
///   lockstep::SharedMemoryGroup group(memory, rank, size);
///   group.all_reduce(gradients, n, sums, 2);                  // copied
///   auto* x = reinterpret_cast<float*>(group.exchange_allocator()->allocate(n * sizeof(float)));
///   group.all_reduce(x, n);                                   // in place
/// \endcode
class SharedMemoryGroup : public ProcessGroup {
 public:
  static constexpr std::size_t max_size = 256;

  /// The size of a memory for groups of `size` members on channels 0 to `channels` - 1: 8 to 34 MB
  /// per channel.
  LOCKSTEP_COLD_DECL static std::size_t bytes(std::size_t size, std::size_t channels);
  /// The size of its heap: up to 2 GB per member and channel, which need memory when they are
  /// allocated.
  LOCKSTEP_COLD_DECL static std::size_t heap_bytes(std::size_t size, std::size_t channels);
  /// Reserves member `rank`'s part on channels 0 to `channels` - 1, as the constructor does on its
  /// channel. \throws Error if there is not enough memory.
  LOCKSTEP_COLD_DECL static void reserve(SharedMemory& memory, std::size_t rank, std::size_t size,
                                         std::size_t channels);

  /// The memory is new, that is, all zeros. \throws UsageError if size or rank is out of range, or
  /// the memory has no such channel; Error if there is not enough memory.
  LOCKSTEP_COLD_DECL SharedMemoryGroup(std::shared_ptr<SharedMemory> memory, std::size_t rank,
                                       std::size_t size, const Options& options = {});

 private:
  struct Member;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/shared_memory/shared_memory_group.ipp"
#endif
