/// \file
/// A group of processes over any transport.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/collectives/algorithms/byte_collective.hpp"
#include "lockstep/collectives/algorithms/group_options.hpp"
#include "lockstep/collectives/algorithms/typed_collective.hpp"
#include "lockstep/concepts/collective.hpp"

namespace lockstep {

/// One process' member of a group; the base of TcpGroup, SharedMemoryGroup, MachineGroup, MpiGroup
/// and StoreGroup, which make it. Its operations are called by one thread at a time, the others by
/// any. Copies are the same member; a default-made one is alone in its group. \throws what the
/// transport throws.
/// \code
///   lockstep::ProcessGroup group = lockstep::TcpGroup(mesh, {.channel = 0});
///   group.all_reduce(gradients, n, sums, 2);
/// \endcode
class ProcessGroup : public detail::TypedCollective<ProcessGroup> {
 public:
  using Options = GroupOptions;

  ProcessGroup() = default;

  std::size_t rank() const { return member_ ? member_->rank() : 0; }
  std::size_t size() const { return member_ ? member_->size() : 1; }
  /// Sends p[0..n) to the other member of a group of two, which calls `receive` for as many. Over TCP it
  /// does not wait until the other member calls it. \throws UsageError in a group of another size.
  template <class T>
  void send(const T* p, std::size_t n) {
    message(const_cast<T*>(p), n, rank());
  }
  template <class T>
  void receive(T* p, std::size_t n) {
    message(p, n, 1 - rank());
  }
  /// Ends the operations of the group in all processes.
  void abort() {
    if (member_) member_->abort();
  }
  /// The same because the process `rank` was lost, which the errors of all processes then name, if
  /// the transport can.
  void lose(std::size_t rank) {
    if (member_) member_->lose(rank);
  }
  /// Allocates memory that the processes exchange in place; null if the transport cannot.
  std::shared_ptr<ExchangeAllocator> exchange_allocator() const {
    return member_ ? member_->exchange_allocator() : nullptr;
  }
  /// The finished parts of operations, and the rank that a current wait is for.
  ExchangeProgress progress() const { return member_ ? member_->progress() : ExchangeProgress{}; }

 protected:
  explicit ProcessGroup(std::shared_ptr<detail::ByteCollective> member)
      : member_(std::move(member)) {}

 private:
  friend class detail::TypedCollective<ProcessGroup>;

  template <class T>
  void message(T* p, std::size_t n, std::size_t sender) {
    static_assert(std::is_trivially_copyable_v<T>);
    using Call = detail::CollectiveCall;
    if (size() != 2) detail::throw_no_pair(size());
    member_->broadcast(Call::of<T>(Call::Operation::message, n, 0, sender),
                       reinterpret_cast<std::byte*>(p));
  }
  void reduce(const detail::CollectiveCall& call, std::byte* p, const detail::Additions& add,
              double* sums) {
    if (member_) member_->all_reduce(call, p, add, sums);
  }
  void scatter(const detail::CollectiveCall& call, std::byte* p, const detail::Additions& add,
               std::span<const Slice> ranges, Slice from) {
    if (member_) member_->reduce_scatter(call, p, add, ranges, from);
  }
  void send(const detail::CollectiveCall& call, std::byte* p) {
    if (member_) member_->broadcast(call, p);
  }
  void gather(const detail::CollectiveCall& call, const std::byte* p, std::byte* out) {
    if (member_) return member_->all_gather(call, p, out);
    if (call.bytes() > 0) std::memmove(out, p, call.bytes());
  }
  void gather(const detail::CollectiveCall& call, std::byte* p, std::span<const Slice> ranges) {
    if (member_) member_->all_gather(call, p, ranges);
  }
  void wait(const detail::CollectiveCall& call) {
    if (member_) member_->barrier(call);
  }

  std::shared_ptr<detail::ByteCollective> member_;
};

static_assert(AllReduces<ProcessGroup, float> && AllReducesWithSums<ProcessGroup, float> &&
              Broadcasts<ProcessGroup, float> && AllGathers<ProcessGroup, float> &&
              ReduceScatters<ProcessGroup, float> && AllGathersRanges<ProcessGroup, float> &&
              Barriers<ProcessGroup>);

}  // namespace lockstep
