#pragma once

#include "lockstep/collectives/shared_memory/shared_channel.hpp"

#include <cstring>
#include <utility>

#include "lockstep/collectives/algorithms/line_slice.hpp"
#include "lockstep/collectives/algorithms/shutdown.hpp"

namespace lockstep::detail {

static_assert(sizeof(SharedCall) <= 64);

std::size_t SharedChannel::bytes(std::size_t size) {
  const std::size_t chunk = chunk_of(size);
  return sizeof(BarrierState) + 2 * size * (line + chunk + result_bytes(size, chunk));
}

void SharedChannel::reserve(SharedMemory& memory, std::size_t channel, std::size_t rank,
                            std::size_t size) {
  std::byte* const begin = memory.data() + channel * bytes(size);
  const std::size_t member = (bytes(size) - sizeof(BarrierState)) / size;
  memory.reserve(begin, sizeof(BarrierState));
  memory.reserve(begin + sizeof(BarrierState) + rank * member, member);
}

SharedChannel::SharedChannel(std::shared_ptr<SharedMemory> memory, std::size_t channel,
                             const SharedBarrier::Options& options, SumOrder order,
                             std::vector<std::size_t> names)
    : memory_(std::move(memory)),
      barrier_(*reinterpret_cast<BarrierState*>(memory_->data() + channel * bytes(options.size)),
               options),
      order_(order),
      chunk_(chunk_of(options.size)),
      slot_(line + chunk_ + result_bytes(options.size, chunk_)),
      slots_(memory_->data() + channel * bytes(options.size) + sizeof(BarrierState)),
      allocator_(std::make_shared<SharedAllocator>(memory_, channel * options.size, options.rank,
                                                   area_of(options.size))),
      names_(std::move(names)) {}

void SharedChannel::publish(const CollectiveCall& call, std::uint64_t place) {
  call_ = call;
  if (barrier_.has_ended()) throw_ended();
  const SharedCall published{call, place};
  std::memcpy(slot(barrier_.passed(), rank()), &published, sizeof published);
}

void SharedChannel::begin() {
  wait(true);
  for (std::size_t r = 0; r < size(); ++r)
    if (call_of(r).call != call_) throw_mismatch(r);
}

void SharedChannel::next(std::chrono::nanoseconds more) { wait(false, more); }

SharedChannel::InHeap SharedChannel::find_in_heap(std::size_t bytes) {
  std::size_t count = 0;
  for (std::size_t r = 0; r < size(); ++r) {
    heap_[r] = allocator_->find(r, call_of(r).place, bytes);
    count += heap_[r] != nullptr;
  }
  return count == 0 ? InHeap::none : count == size() ? InHeap::all : InHeap::some;
}

void SharedChannel::reduce_in_place(std::size_t bytes, std::size_t element, SumMembers sum) {
  const Slice own = line_slice(bytes, size(), rank());
  if (own.count > 0) sum(heap_.data(), size(), own.first / element, own.count / element, order_);
  const SharedBarrier::Result result = barrier_.wait();
  if (result == SharedBarrier::Result::passed) return;
  allocator_->make_private();  // a member that stopped may go on writing
  fail(result, false);
}

void SharedChannel::reduce(std::byte* p, std::size_t bytes, std::size_t first, std::size_t at,
                           SumParts sum) {
  const bool all_add_this = size() == 2 || bytes <= all_add;
  for (std::size_t count = first, done = 0; done < bytes; at = 0) {
    const std::size_t following = std::min(chunk_, bytes - done - count);
    const Slice own = all_add_this ? Slice{0, count} : line_slice(count, size(), rank());
    for (std::size_t r = 0; r < size(); ++r) parts_[r] = input_of(r) + at + own.first;
    parts_[rank()] = p + done + own.first;  // the same, perhaps still in the cache
    std::byte* const to = all_add_this ? p + done : result(barrier_.passed(), rank());
    sum(to, parts_.data(), size(), own.count, order_);
    if (following > 0) std::memcpy(input(), p + done + count, following);
    if (following > 0 || !all_add_this) next();
    for (std::size_t r = 0; r < size() && !all_add_this; ++r) {
      const Slice theirs = line_slice(count, size(), r);
      std::memcpy(p + done + theirs.first, result(barrier_.passed() - 1, r), theirs.count);
    }
    done += std::exchange(count, following);
  }
}

void SharedChannel::add_inputs(std::byte* to, std::size_t bytes, std::size_t at, Slice from,
                               SumParts sum) {
  for (std::size_t i = 0; i < from.count; ++i) parts_[i] = input_of(from.first + i) + at;
  sum(to, parts_.data(), from.count, bytes, order_);
}

void SharedChannel::add_in_heap(std::byte* p, Slice own, std::size_t bytes, Slice from,
                                SumParts sum) {
  for (std::size_t i = 0; i < from.count; ++i)
    parts_[i] = heap_of(from.first + i, bytes) + own.first;
  if (own.count > 0) sum(p + own.first, parts_.data(), from.count, own.count, order_);
}

void SharedChannel::wait(bool is_first, std::chrono::nanoseconds more) {
  const SharedBarrier::Result result = barrier_.wait(more);
  if (result != SharedBarrier::Result::passed) fail(result, is_first, more);
}

void SharedChannel::fail(SharedBarrier::Result result, bool is_first,
                         std::chrono::nanoseconds more) {
  if (result == SharedBarrier::Result::timed_out)
    throw_timeout(is_first, barrier_.timeout() + more);
  throw_ended();
}

Shutdown SharedChannel::shutdown() const {
  const BarrierEnd end = barrier_.end();
  if (end.is_elsewhere)
    if (const auto why = barrier_.shutdown()) return *why;
  return {.cause = end.is_elsewhere ? Shutdown::Cause::aborted : end.cause,
          .rank = static_cast<std::uint32_t>(name(end.rank)),
          .by = static_cast<std::uint32_t>(name(rank())),
          .theirs = theirs_,
          .ours = call_};
}

void SharedChannel::throw_ended() {
  // Only the members that have compared the calls know them.
  const BarrierEnd end = barrier_.end();
  if (end.cause == Shutdown::Cause::mismatch && !end.is_elsewhere) threw_mismatch_ = true;
  throw_shutdown(shutdown(), call_.name(), name(rank()), threw_mismatch_);
}

void SharedChannel::throw_timeout(bool is_first, std::chrono::nanoseconds waited) {
  std::vector<std::size_t> missing = barrier_.missing();
  for (std::size_t& member : missing) member = name(member);
  throw_late(name(barrier_.end().rank), call_.name(), name(rank()), waited, missing, !is_first);
}

void SharedChannel::throw_mismatch(std::size_t other) {
  theirs_ = call_of(other).call;
  threw_mismatch_ = true;
  barrier_.end(Shutdown::Cause::mismatch, other);
  detail::throw_mismatch(name(other), theirs_, name(rank()), call_);
}

}  // namespace lockstep::detail
