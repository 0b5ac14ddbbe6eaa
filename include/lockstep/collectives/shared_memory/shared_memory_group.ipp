#pragma once

#include "lockstep/collectives/shared_memory/shared_memory_group.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/collectives/shared_memory/shared_channel.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

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

struct SharedMemoryGroup::Member final : detail::ByteCollective {
  using Call = detail::CollectiveCall;
  using Cause = detail::Shutdown::Cause;

  static constexpr std::size_t line = 64;

  Member(std::shared_ptr<SharedMemory> memory, std::size_t rank, std::size_t size,
         const Options& options)
      : channel(checked(std::move(memory), rank, size, options.channel), options.channel,
                {rank, size, options.timeout, options.spins}, options.order) {}

  static std::shared_ptr<SharedMemory> checked(std::shared_ptr<SharedMemory> memory,
                                               std::size_t rank, std::size_t size,
                                               std::size_t channel) {
    if (size < 1 || size > max_size || rank >= size)
      throw UsageError(
          "shared memory group: rank is {}, size is {}; the size must be between 1 and {}, the rank "
          "below it",
          rank, size, max_size);
    if (channel >= memory->bytes() / bytes(size, 1))
      throw UsageError(
          "shared memory group: channel {} of {} members does not fit in a memory of {} bytes; give "
          "it the bytes of all channels",
          channel, size, memory->bytes());
    detail::SharedChannel::reserve(*memory, channel, rank, size);
    return memory;
  }

  std::size_t rank() const override { return channel.rank(); }
  std::size_t size() const override { return channel.size(); }
  void abort() override { channel.barrier().end(Cause::aborted, rank()); }
  void lose(std::size_t member) override { channel.barrier().end(Cause::lost, member); }
  std::shared_ptr<ExchangeAllocator> exchange_allocator() const override {
    return channel.exchange_allocator();
  }
  ExchangeProgress progress() const override { return channel.barrier().progress(); }

  void all_reduce(const Call& call, std::byte* p, const detail::Additions& add,
                  double* sums) override {
    const std::size_t bytes = call.bytes(), sum_bytes = call.sum_bytes();
    add_sent(bytes + sum_bytes);
    const bool sums_first = sum_bytes <= channel.most_sums;
    const std::size_t at = sums_first ? (sum_bytes + 63) / 64 * 64 : 0;
    const std::size_t first = std::min(bytes, channel.chunk() - at);
    const std::uint64_t place = channel.place_of(p, bytes);
    channel.publish(call, place);
    if (sums_first && sum_bytes > 0) std::memcpy(channel.input(), sums, sum_bytes);
    if (first > 0 && place == detail::SharedAllocator::nowhere)
      std::memcpy(channel.input() + at, p, first);
    channel.begin();
    const InHeap where = channel.find_in_heap(bytes);
    auto* const tail = reinterpret_cast<std::byte*>(sums);
    if (sums_first) channel.add_inputs(tail, sum_bytes, 0, &detail::sum_parts<double>);
    if (where == InHeap::all) {
      channel.reduce_in_place(bytes, call.element, add.members);
    } else if (where == InHeap::none) {
      channel.reduce(p, bytes, first, at, add.parts);
    } else {  // those in the heap have copied nothing yet
      const std::size_t again = std::min(bytes, channel.chunk());
      std::memcpy(channel.input(), p, again);
      channel.next();
      channel.reduce(p, bytes, again, 0, add.parts);
    }
    if (sums_first) return;
    const std::size_t first_sums = std::min(sum_bytes, channel.chunk());
    std::memcpy(channel.input(), tail, first_sums);
    channel.next();
    channel.reduce(tail, sum_bytes, first_sums, 0, &detail::sum_parts<double>);
  }
  void broadcast(const Call& call, std::byte* p) override {
    const bool is_root = rank() == call.root;
    if (is_root) add_sent(call.bytes());
    in_chunks(call, [&](std::size_t at, std::size_t count, auto&& exchange) {
      if (is_root && count > 0) std::memcpy(channel.input(), p + at, count);
      exchange();
      if (!is_root && count > 0) std::memcpy(p + at, channel.input_of(call.root), count);
    });
  }
  void all_gather(const Call& call, const std::byte* p, std::byte* out) override {
    add_sent(call.bytes());
    in_chunks(call, [&](std::size_t at, std::size_t count, auto&& exchange) {
      if (count > 0) std::memcpy(channel.input(), p + at, count);
      exchange();
      for (std::size_t r = 0; r < size() && count > 0; ++r)
        std::memmove(out + r * call.bytes() + at, r == rank() ? p + at : channel.input_of(r),
                     count);
    });
  }
  void barrier(const Call& call) override {
    channel.publish(call);
    channel.begin();
  }
  void reduce_scatter(const Call& call, std::byte* p, const detail::Additions& add,
                      std::span<const Slice> ranges, Slice from) override {
    const bool contributes = from.contains(rank());
    if (contributes) add_sent(call.bytes());
    const Slice whole = span_of(call, ranges);
    const std::size_t end = whole.first + whole.count;
    channel.publish(call, channel.place_of(p, end));
    channel.begin();
    if (channel.are_in_heap(from, end)) {
      const Slice own = ranges[rank()];
      channel.add_in_heap(p, {own.first * call.element, own.count * call.element}, end, from,
                          add.parts);
      return channel.next();  // until here no member may change its elements
    }
    in_pieces(whole, [&](std::size_t at) {
      if (contributes)
        for (const Slice& range : ranges) {
          const Slice part = piece_of(call, range, at);
          if (part.count > 0)
            std::memcpy(channel.input() + part.first - at, p + part.first, part.count);
        }
      channel.next();
      if (const Slice own = piece_of(call, ranges[rank()], at); own.count > 0)
        channel.add_inputs(p + own.first, own.count, own.first - at, from, add.parts);
    });
  }
  void all_gather(const Call& call, std::byte* p, std::span<const Slice> ranges) override {
    add_sent(ranges[rank()].count * call.element);
    const Slice whole = span_of(call, ranges);
    const std::size_t end = whole.first + whole.count;
    const auto copy_in = [&](std::size_t at) {
      if (const Slice own = piece_of(call, ranges[rank()], at); own.count > 0)
        std::memcpy(channel.input() + own.first - at, p + own.first, own.count);
    };
    const std::uint64_t place = channel.place_of(p, end);
    channel.publish(call, place);
    if (place == detail::SharedAllocator::nowhere) copy_in(whole.first);
    channel.begin();
    const InHeap where = channel.find_in_heap(end);
    if (where == InHeap::all) {
      for (std::size_t r = 0; r < size(); ++r)
        if (const Slice& range = ranges[r]; r != rank() && range.count > 0) {
          const std::size_t first = range.first * call.element;
          std::memcpy(p + first, channel.heap_of(r, end) + first, range.count * call.element);
        }
      return channel.next();  // until here no member may change its elements
    }
    bool is_published = where == InHeap::none;  // else those in the heap have copied nothing yet
    in_pieces(whole, [&](std::size_t at) {
      if (!std::exchange(is_published, false)) {
        copy_in(at);
        channel.next();
      }
      for (std::size_t r = 0; r < size(); ++r)
        if (const Slice part = piece_of(call, ranges[r], at); r != rank() && part.count > 0)
          std::memcpy(p + part.first, channel.input_of(r) + part.first - at, part.count);
    });
  }

  void add_sent(std::size_t bytes) const {
    if (size() > 1) detail::count_sent(bytes);
  }

  /// The bytes from the first to the last of all ranges, from a whole line on.
  static Slice span_of(const Call& call, std::span<const Slice> ranges) {
    std::size_t first = 0, end = 0;
    for (const Slice& range : ranges)
      if (range.count > 0) {
        if (end == 0) first = range.first * call.element / line * line;
        end = (range.first + range.count) * call.element;
      }
    return {first, end - first};
  }
  /// Calls f(at) for the chunks of `whole` at the bytes at, at + chunk, ..., at least once.
  template <class F>
  void in_pieces(Slice whole, const F& f) {
    std::size_t at = whole.first;
    do {
      f(at);
      at += channel.chunk();
    } while (at < whole.first + whole.count);
  }
  /// The part of a range in the chunk that begins at byte `at`, in bytes.
  Slice piece_of(const Call& call, const Slice& range, std::size_t at) const {
    const std::size_t begin = std::max(range.first * call.element, at);
    const std::size_t end =
        std::min((range.first + range.count) * call.element, at + channel.chunk());
    return range.count > 0 && begin < end ? Slice{begin, end - begin} : Slice{};
  }

  /// Calls f(at, count, exchange) for each chunk, at least once; `exchange` is its barrier.
  template <class F>
  void in_chunks(const Call& call, const F& f) {
    channel.publish(call);
    std::size_t at = 0;
    do {
      const std::size_t count = std::min(channel.chunk(), call.bytes() - at);
      f(at, count, [&] { at == 0 ? channel.begin() : channel.next(); });
      at += count;
    } while (at < call.bytes());
  }

  detail::SharedChannel channel;
};

SharedMemoryGroup::SharedMemoryGroup(std::shared_ptr<SharedMemory> memory, std::size_t rank,
                                     std::size_t size, const Options& options)
    : ProcessGroup(std::make_shared<Member>(std::move(memory), rank, size, options)) {}

}  // namespace lockstep
