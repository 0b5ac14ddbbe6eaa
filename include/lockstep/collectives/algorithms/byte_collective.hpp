/// \file
/// One member of a group of processes, as a transport implements it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "lockstep/collectives/algorithms/collective_call.hpp"
#include "lockstep/collectives/algorithms/sum_parts.hpp"
#include "lockstep/core/exchange_allocator.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// The operations of a member, on bytes. `call` has the number of elements and their size; a root is
/// below the group's size. One thread at a time calls the operations, any thread the others.
class ByteCollective {
 public:
  ByteCollective() = default;
  ByteCollective(const ByteCollective&) = delete;
  ByteCollective& operator=(const ByteCollective&) = delete;
  virtual ~ByteCollective() = default;

  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;

  /// Replaces the elements at p and the doubles at sums with their sums over all members.
  virtual void all_reduce(const CollectiveCall& call, std::byte* p, const Additions& add,
                          double* sums) = 0;
  /// Also of a message in a group of two, whose sender need not wait for the receiver.
  virtual void broadcast(const CollectiveCall& call, std::byte* p) = 0;
  /// The elements of member r come to out + r call.bytes().
  virtual void all_gather(const CollectiveCall& call, const std::byte* p, std::byte* out) = 0;
  virtual void barrier(const CollectiveCall& call) = 0;

  /// The sum of the elements ranges[rank] of the members `from`. Unless the transport can do better,
  /// a barrier, which compares the ranges, and an all-reduce of each, to which others contribute
  /// zeros.
  virtual void reduce_scatter(const CollectiveCall& call, std::byte* p, const Additions& add,
                              std::span<const Slice> ranges, Slice from) {
    barrier(call);
    if (!from.contains(rank()))
      for (const Slice& range : ranges)
        std::fill_n(p + range.first * call.element, range.count * call.element, std::byte{0});
    for (const Slice& range : ranges)
      if (range.count > 0)
        all_reduce(part_of(call, CollectiveCall::Operation::all_reduce, range.count),
                   p + range.first * call.element, add, nullptr);
  }
  /// The elements ranges[r] come from member r. Unless the transport can do better, a barrier and a
  /// broadcast of each.
  virtual void all_gather(const CollectiveCall& call, std::byte* p, std::span<const Slice> ranges) {
    barrier(call);
    for (std::size_t r = 0; r < ranges.size(); ++r)
      if (ranges[r].count > 0)
        broadcast(part_of(call, CollectiveCall::Operation::broadcast, ranges[r].count, r),
                  p + ranges[r].first * call.element);
  }

  /// Ends the operations of all members.
  virtual void abort() = 0;
  /// The same because the process `rank` was lost, which the errors name if the transport can.
  virtual void lose(std::size_t /*rank*/) { abort(); }
  /// Allocates memory that is exchanged in place; null if the transport cannot.
  virtual std::shared_ptr<ExchangeAllocator> exchange_allocator() const { return nullptr; }
  /// The finished parts of operations, and the rank that a current wait is for.
  virtual ExchangeProgress progress() const { return {}; }

 private:
  static CollectiveCall part_of(const CollectiveCall& call, CollectiveCall::Operation operation,
                                std::size_t n, std::size_t root = 0) {
    return {operation, call.kind, n, 0, root, call.element};
  }
};

}  // namespace lockstep::detail
