/// \file
/// One channel of a shared memory: the protocol of one group. Invariant: what a member writes before
/// barrier k of the channel, it writes into its slots of set k mod 2, and others read it between the
/// barriers k and k + 1; so nothing is overwritten while it is read, and one barrier per chunk
/// suffices. Memory in the heap is accessed by others between two barriers that its owner waits for.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/collectives/algorithms/collective_call.hpp"
#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/collectives/algorithms/sum_parts.hpp"
#include "lockstep/collectives/shared_memory/shared_allocator.hpp"
#include "lockstep/collectives/shared_memory/shared_barrier.hpp"
#include "lockstep/collectives/shared_memory/shared_memory.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// A member's call, and where its elements lie in its area of the heap.
struct SharedCall {
  CollectiveCall call{};
  std::uint64_t place = SharedAllocator::nowhere;
};

/// One member's end of a channel. An operation writes to its slots, calls `begin`, reads what others
/// have written, and calls `next` before it reads more.
///
///     channel   | BarrierState | member 0 | member 1 | ...
///     member    | set 0 | set 1 |
///     set       | call: 1 line | input: chunk bytes | result: its part of a chunk |
///
/// An all-reduce of three chunks with more than two members, between the barriers |:
///
///     copy in 0 | sum part of 0, copy in 1 | copy out 0, sum part of 1, copy in 2 | ...
///
/// Where all members' elements lie in the heap, nothing is copied:
///
///     | sum part, write it to all |
class SharedChannel {
 public:
  /// Up to this many bytes every member adds everything, which saves a barrier; two members always
  /// do, since both read as many bytes either way.
  static constexpr std::size_t all_add = std::size_t{16} << 10;
  /// Up to this many bytes of `sums` travel with the first chunk.
  static constexpr std::size_t most_sums = 4096;

  /// Bytes of each member that are exchanged between two barriers.
  static std::size_t chunk_of(std::size_t size) {
    return std::clamp((std::size_t{8} << 20) / size, std::size_t{64} << 10, std::size_t{2} << 20) &
           ~std::size_t{63};
  }
  LOCKSTEP_COLD_DECL static std::size_t bytes(std::size_t size);
  /// Each member's area of the heap; virtual memory until it is allocated. Not a power of two: some
  /// processors predict the way of the L1 cache from the address modulo 256 MB, and a sum of two
  /// members took 15 times as long where their numbers lay a multiple of it apart.
  static std::size_t area_of(std::size_t size) {
    return (std::min(std::size_t{2} << 30, (std::size_t{32} << 30) / size) & ~(alignment - 1)) +
           alignment;
  }
  /// Reserves the barrier and member `rank`'s slots. \throws Error.
  LOCKSTEP_COLD_DECL static void reserve(SharedMemory& memory, std::size_t channel,
                                         std::size_t rank, std::size_t size);

  LOCKSTEP_COLD_DECL SharedChannel(std::shared_ptr<SharedMemory> memory, std::size_t channel,
                                   const SharedBarrier::Options& options, SumOrder order,
                                   std::vector<std::size_t> names = {});

  std::size_t rank() const { return barrier_.rank(); }
  std::size_t size() const { return barrier_.size(); }
  /// A member's rank in the job, by which errors name it.
  std::size_t name(std::size_t member) const { return names_.empty() ? member : names_[member]; }
  std::size_t chunk() const { return chunk_; }
  SharedBarrier& barrier() { return barrier_; }
  const SharedBarrier& barrier() const { return barrier_; }
  const std::shared_ptr<SharedAllocator>& exchange_allocator() const { return allocator_; }

  /// The place of p[0..bytes) if it lies in this member's area and summing in place pays.
  std::uint64_t place_of(const void* p, std::size_t bytes) const {
    return bytes > all_add ? allocator_->place_of(p, bytes) : SharedAllocator::nowhere;
  }

  /// Publishes the call in this member's slot of the next set; call it before the inputs are
  /// written. \throws CollectiveAborted.
  LOCKSTEP_DECL void publish(const CollectiveCall& call,
                             std::uint64_t place = SharedAllocator::nowhere);
  /// Waits until all members have published theirs, and compares them. \throws CollectiveTimeout,
  /// CollectiveAborted, UsageError in all members if the calls differ.
  LOCKSTEP_DECL void begin();
  /// Waits until all members have written their slots of the next set; `more` is added to the
  /// timeout.
  LOCKSTEP_DECL void next(std::chrono::nanoseconds more = {});
  /// Why the barrier has ended, as it is known to this member.
  LOCKSTEP_COLD_DECL Shutdown shutdown() const;
  /// A mismatch has been reported: later operations throw CollectiveAborted.
  void note_reported_mismatch() { threw_mismatch_ = true; }

  /// This member's input of the set that the next barrier publishes.
  std::byte* input() { return slot(barrier_.passed(), rank()) + line; }
  /// The input that member r has published at the last barrier.
  const std::byte* input_of(std::size_t r) { return slot(barrier_.passed() - 1, r) + line; }

  /// The memory of member r's elements, whose place its call has published at the last barrier.
  std::byte* heap_of(std::size_t r, std::size_t bytes) const {
    return allocator_->find(r, call_of(r).place, bytes);
  }

  /// Whether the elements of the members `from` lie in the heap, according to the calls that the last
  /// barrier published.
  bool are_in_heap(Slice from, std::size_t bytes) const {
    for (std::size_t i = 0; i < from.count; ++i)
      if (heap_of(from.first + i, bytes) == nullptr) return false;
    return true;
  }
  /// p[own) = the sum over the members `from` of theirs, of which `bytes` lie in the heap.
  LOCKSTEP_DECL void add_in_heap(std::byte* p, Slice own, std::size_t bytes, Slice from,
                                 SumParts sum);
  /// Whose elements lie in the heap, according to the calls that the last barrier published.
  enum class InHeap { none, some, all };
  LOCKSTEP_DECL InHeap find_in_heap(std::size_t bytes);
  /// Sums the elements of all members where they lie; call it if `find_in_heap` found them all.
  LOCKSTEP_DECL void reduce_in_place(std::size_t bytes, std::size_t element, SumMembers sum);
  /// Replaces p[0..bytes) with the sum over the members, whose inputs already contain the first
  /// `first` bytes at offset `at`. Call it after a barrier.
  LOCKSTEP_DECL void reduce(std::byte* p, std::size_t bytes, std::size_t first, std::size_t at,
                            SumParts sum);
  /// to[0..bytes) = the sum over the members of their inputs at offset `at`.
  void add_inputs(std::byte* to, std::size_t bytes, std::size_t at, SumParts sum) {
    add_inputs(to, bytes, at, {0, size()}, sum);
  }
  /// The same over the members `from`.
  LOCKSTEP_DECL void add_inputs(std::byte* to, std::size_t bytes, std::size_t at, Slice from,
                                SumParts sum);

 private:
  static constexpr std::size_t line = 64;
  static constexpr std::size_t alignment = std::size_t{64} << 10;
  /// Room for a member's part of a chunk; two members add everything themselves.
  static constexpr std::size_t result_bytes(std::size_t size, std::size_t chunk) {
    return size == 2 ? 0 : (chunk / line + size - 1) / size * line;
  }

  std::byte* slot(std::uint64_t barrier, std::size_t r) const {
    return slots_ + (r * 2 + barrier % 2) * slot_;
  }
  std::byte* result(std::uint64_t barrier, std::size_t r) const {
    return slot(barrier, r) + line + chunk_;
  }
  const SharedCall& call_of(std::size_t r) const {
    return *reinterpret_cast<const SharedCall*>(slot(barrier_.passed() - 1, r));
  }

  LOCKSTEP_DECL void wait(bool is_first, std::chrono::nanoseconds more = {});
  [[noreturn]] LOCKSTEP_COLD_DECL void fail(SharedBarrier::Result result, bool is_first,
                                            std::chrono::nanoseconds more = {});
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_ended();
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_timeout(bool is_first,
                                                     std::chrono::nanoseconds waited);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_mismatch(std::size_t other);

  std::shared_ptr<SharedMemory> memory_;
  SharedBarrier barrier_;
  SumOrder order_;
  std::size_t chunk_, slot_;
  std::byte* slots_;
  std::shared_ptr<SharedAllocator> allocator_;
  std::vector<std::size_t> names_;
  CollectiveCall call_{}, theirs_{};
  bool threw_mismatch_ = false;
  std::array<const std::byte*, BarrierState::max_size> parts_{};
  std::array<void*, BarrierState::max_size> heap_{};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/shared_memory/shared_channel.ipp"
#endif
