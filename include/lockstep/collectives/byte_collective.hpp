/// \file
/// One member of a group of processes, as a transport implements it.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/collectives/collective_call.hpp"
#include "lockstep/collectives/sum_parts.hpp"
#include "lockstep/core/exchange_allocator.hpp"
#include "lockstep/core/exchange_progress.hpp"

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
  virtual void broadcast(const CollectiveCall& call, std::byte* p) = 0;
  /// The elements of member r come to out + r call.bytes().
  virtual void all_gather(const CollectiveCall& call, const std::byte* p, std::byte* out) = 0;
  virtual void barrier(const CollectiveCall& call) = 0;

  /// Ends the operations of all members.
  virtual void abort() = 0;
  /// The same because the process `rank` was lost, which the errors name if the transport can.
  virtual void lose(std::size_t /*rank*/) { abort(); }
  /// Allocates memory that is exchanged in place; null if the transport cannot.
  virtual std::shared_ptr<ExchangeAllocator> exchange_allocator() const { return nullptr; }
  /// The finished parts of operations, and the rank that a current wait is for.
  virtual ExchangeProgress progress() const { return {}; }
};

}  // namespace lockstep::detail
