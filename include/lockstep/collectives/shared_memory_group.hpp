/// \file
/// The collective between processes of one machine, over memory that they share. Invariants: the
/// additions are those of ThreadGroup, so both give the same bits; no process accesses data of
/// another one, except for memory of its `exchange_allocator` during an all-reduce; every wait ends
/// by an abort in any process or at its deadline, and the group cannot be used after that;
/// operations do not allocate.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "lockstep/collectives/collective_call.hpp"
#include "lockstep/collectives/shared_memory.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/collectives/sum_parts.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_allocator.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep {

namespace detail {
class SharedChannel;
}

/// This process' member of a group. Its operations are called by one thread at a time, `abort` and
/// `progress` by any. Copies are the same member. Each group of a memory has its own channel, the
/// same in all processes.
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
///   lockstep::SharedMemoryGroup group(memory, {.rank = rank, .size = size});
///   group.all_reduce(gradients, n, sums, 2);                  // copied
///   auto* x = reinterpret_cast<float*>(group.exchange_allocator()->allocate(n * sizeof(float)));
///   group.all_reduce(x, n);                                   // in place
/// \endcode
class SharedMemoryGroup {
 public:
  static constexpr std::size_t max_size = 256;

  /// Options, equal in all members except for the rank and the polls.
  struct Options {
    std::size_t rank = 0, size = 1, channel = 0;
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< of each wait
    SumOrder order = SumOrder::ranks;
    /// Polls before a member sleeps; use 0 if the processes have more threads than cores.
    int spins = 0;
  };

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
  LOCKSTEP_COLD_DECL SharedMemoryGroup(std::shared_ptr<SharedMemory> memory,
                                       const Options& options);

  LOCKSTEP_DECL std::size_t rank() const;
  LOCKSTEP_DECL std::size_t size() const;
  /// Allocates memory that is summed in place.
  LOCKSTEP_COLD_DECL std::shared_ptr<ExchangeAllocator> exchange_allocator() const;
  /// Ends the operations of this group in all processes.
  LOCKSTEP_COLD_DECL void abort();
  /// The same because member `member` was lost, which the errors of all processes then name.
  LOCKSTEP_COLD_DECL void lose(std::size_t member);
  /// The finished parts of operations, and the member that a current wait is for.
  LOCKSTEP_COLD_DECL ExchangeProgress progress() const;

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }

  /// Replaces p[0..n) and sums[0..m) with their sums over all members.
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    static_assert(
        std::is_arithmetic_v<T> && !std::is_same_v<T, bool>,
        "lockstep::SharedMemoryGroup: all_reduce adds numbers; give it an arithmetic type");
    reduce(reinterpret_cast<std::byte*>(p), detail::elements_of<T>(n),
           {&detail::sum_parts<T>, &detail::sum_members_from<T>}, sums, m);
  }

  /// Replaces p[0..n) with the root's.
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    static_assert(std::is_trivially_copyable_v<T>);
    send(reinterpret_cast<std::byte*>(p), detail::elements_of<T>(n), root);
  }

  /// out[r n..(r + 1) n) becomes p[0..n) of member r. p may be this member's own part of `out`;
  /// otherwise they must not overlap.
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    gather(reinterpret_cast<const std::byte*>(p), detail::elements_of<T>(n),
           reinterpret_cast<std::byte*>(out));
  }

  /// Returns when all members have called it.
  LOCKSTEP_DECL void barrier();

 private:
  struct Sum {
    detail::SumParts copied;
    detail::SumMembers in_place;
  };

  LOCKSTEP_DECL void reduce(std::byte* p, detail::Elements elements, Sum sum, double* sums,
                            std::size_t m);
  LOCKSTEP_DECL void send(std::byte* p, detail::Elements elements, std::size_t root);
  LOCKSTEP_DECL void gather(const std::byte* p, detail::Elements elements, std::byte* out);

  std::shared_ptr<detail::SharedChannel> channel_;
};

static_assert(AllReduces<SharedMemoryGroup, float> &&
              AllReducesWithSums<SharedMemoryGroup, float> &&
              Broadcasts<SharedMemoryGroup, float> && AllGathers<SharedMemoryGroup, float> &&
              Barriers<SharedMemoryGroup>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/shared_memory_group.ipp"
#endif
