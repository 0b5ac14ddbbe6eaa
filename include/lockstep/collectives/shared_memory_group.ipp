#pragma once

#include "lockstep/collectives/shared_memory_group.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/collectives/shared_channel.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

using detail::SharedCall;
using InHeap = detail::SharedChannel::InHeap;
static_assert(SharedMemoryGroup::max_size == detail::BarrierState::max_size);

std::size_t SharedMemoryGroup::bytes(std::size_t size, std::size_t channels) {
  return channels * detail::SharedChannel::bytes(size);
}

std::size_t SharedMemoryGroup::heap_bytes(std::size_t size, std::size_t channels) {
  return channels * size * detail::SharedChannel::area_of(size);
}

void SharedMemoryGroup::reserve(SharedMemory& memory, std::size_t rank, std::size_t size,
                                std::size_t channels) {
  for (std::size_t channel = 0; channel < channels; ++channel)
    detail::SharedChannel::reserve(memory, channel, rank, size);
}

SharedMemoryGroup::SharedMemoryGroup(std::shared_ptr<SharedMemory> memory, const Options& options) {
  if (options.size < 1 || options.size > max_size || options.rank >= options.size)
    throw UsageError(
        "shared memory group: rank is {}, size is {}; the size must be between 1 and {}, the rank "
        "below it",
        options.rank, options.size, max_size);
  if (options.channel >= memory->bytes() / bytes(options.size, 1))
    throw UsageError(
        "shared memory group: channel {} of {} members does not fit in a memory of {} bytes; give "
        "it the bytes of all channels",
        options.channel, options.size, memory->bytes());
  detail::SharedChannel::reserve(*memory, options.channel, options.rank, options.size);
  channel_ = std::make_shared<detail::SharedChannel>(
      std::move(memory), options.channel,
      detail::SharedBarrier::Options{options.rank, options.size, options.timeout, options.spins},
      options.order);
}

std::size_t SharedMemoryGroup::rank() const { return channel_->rank(); }
std::size_t SharedMemoryGroup::size() const { return channel_->size(); }
std::shared_ptr<ExchangeAllocator> SharedMemoryGroup::exchange_allocator() const {
  return channel_->exchange_allocator();
}
void SharedMemoryGroup::abort() {
  channel_->barrier().end(detail::BarrierEnd::Cause::aborted, rank());
}
void SharedMemoryGroup::lose(std::size_t member) {
  channel_->barrier().end(detail::BarrierEnd::Cause::lost, member);
}
ExchangeProgress SharedMemoryGroup::progress() const { return channel_->barrier().progress(); }

void SharedMemoryGroup::reduce(std::byte* p, detail::Elements elements, Sum sum, double* sums,
                               std::size_t m) {
  detail::SharedChannel& c = *channel_;
  const std::size_t bytes = elements.bytes(), sum_bytes = m * sizeof(double);
  const bool sums_first = sum_bytes <= c.most_sums;
  const std::size_t at = sums_first ? (sum_bytes + 63) / 64 * 64 : 0;
  const std::size_t first = std::min(bytes, c.chunk() - at);
  const std::uint64_t place = c.place_of(p, bytes);
  c.publish({SharedCall::Operation::all_reduce, elements.n, m, 0, elements.size,
             static_cast<std::uint64_t>(elements.kind), place});
  if (sums_first && m > 0) std::memcpy(c.input(), sums, sum_bytes);
  if (first > 0 && place == detail::SharedAllocator::nowhere) std::memcpy(c.input() + at, p, first);
  c.begin();
  const InHeap where = c.find_in_heap(bytes);
  auto* const tail = reinterpret_cast<std::byte*>(sums);
  if (sums_first) c.add_inputs(tail, sum_bytes, 0, &detail::sum_parts<double>);
  if (where == InHeap::all) {
    c.reduce_in_place(bytes, elements.size, sum.in_place);
  } else if (where == InHeap::none) {
    c.reduce(p, bytes, first, at, sum.copied);
  } else {  // those in the heap have copied nothing yet
    const std::size_t again = std::min(bytes, c.chunk());
    std::memcpy(c.input(), p, again);
    c.next();
    c.reduce(p, bytes, again, 0, sum.copied);
  }
  if (sums_first) return;
  const std::size_t first_sums = std::min(sum_bytes, c.chunk());
  std::memcpy(c.input(), tail, first_sums);
  c.next();
  c.reduce(tail, sum_bytes, first_sums, 0, &detail::sum_parts<double>);
}

void SharedMemoryGroup::send(std::byte* p, detail::Elements elements, std::size_t root) {
  if (root >= size()) {
    abort();
    throw UsageError("broadcast: root is {}; it must be below the group's size, {}", root, size());
  }
  detail::SharedChannel& c = *channel_;
  const bool is_root = rank() == root;
  const std::size_t bytes = elements.bytes();
  c.publish({SharedCall::Operation::broadcast, elements.n, 0, root, elements.size,
             static_cast<std::uint64_t>(elements.kind)});
  std::size_t at = 0;
  do {
    const std::size_t count = std::min(c.chunk(), bytes - at);
    if (is_root && count > 0) std::memcpy(c.input(), p + at, count);
    at == 0 ? c.begin() : c.next();
    if (!is_root && count > 0) std::memcpy(p + at, c.input_of(root), count);
    at += count;
  } while (at < bytes);
}

void SharedMemoryGroup::gather(const std::byte* p, detail::Elements elements, std::byte* out) {
  detail::SharedChannel& c = *channel_;
  const std::size_t bytes = elements.bytes();
  c.publish({SharedCall::Operation::all_gather, elements.n, 0, 0, elements.size,
             static_cast<std::uint64_t>(elements.kind)});
  std::size_t at = 0;
  do {
    const std::size_t count = std::min(c.chunk(), bytes - at);
    if (count > 0) std::memcpy(c.input(), p + at, count);
    at == 0 ? c.begin() : c.next();
    for (std::size_t r = 0; r < size() && count > 0; ++r)
      std::memmove(out + r * bytes + at, r == rank() ? p + at : c.input_of(r), count);
    at += count;
  } while (at < bytes);
}

void SharedMemoryGroup::barrier() {
  channel_->publish({SharedCall::Operation::barrier, 0, 0, 0, 0, 0});
  channel_->begin();
}

}  // namespace lockstep
