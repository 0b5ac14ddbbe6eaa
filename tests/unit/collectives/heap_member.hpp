/// \file
/// A member of a group that sums in place, with its numbers in the memory that the group allocates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_allocator.hpp"
#include "lockstep/core/slice.hpp"
#include "members.hpp"

namespace contract {

/// Which members of an operation have their numbers in the heap; the calls take turns.
enum class Where { all, some, changing };

/// A member that moves its numbers to the heap before an all-reduce or an operation on ranges, and
/// back after it.
template <class Group>
class HeapMember {
 public:
  HeapMember(Group group, Where where) : group_(std::move(group)), where_(where) {}

  std::size_t rank() const { return group_.rank(); }
  std::size_t size() const { return group_.size(); }
  void abort() { group_.abort(); }

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    in_heap(p, n, [&](T* x) { group_.all_reduce(x, n, sums, m); });
  }
  template <class T>
  void reduce_scatter(T* p, std::span<const lockstep::Slice> ranges) {
    reduce_scatter(p, ranges, lockstep::Slice{0, size()});
  }
  template <class T>
  void reduce_scatter(T* p, std::span<const lockstep::Slice> ranges, lockstep::Slice from) {
    in_heap(p, end_of(ranges), [&](T* x) { group_.reduce_scatter(x, ranges, from); });
  }
  template <class T>
  void all_gather(T* p, std::span<const lockstep::Slice> ranges) {
    in_heap(p, end_of(ranges), [&](T* x) { group_.all_gather(x, ranges); });
  }
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    group_.broadcast(p, n, root);
  }
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    group_.all_gather(p, n, out);
  }
  void barrier() { group_.barrier(); }

 private:
  static std::size_t end_of(std::span<const lockstep::Slice> ranges) {
    std::size_t end = 0;
    for (const lockstep::Slice& range : ranges) end = std::max(end, range.first + range.count);
    return end;
  }
  template <class T, class F>
  void in_heap(T* p, std::size_t n, const F& operation) {
    const bool moves = where_ == Where::all || (rank() + calls_) % 2 == 0;
    if (where_ == Where::changing) ++calls_;
    if (!moves || n == 0) return operation(p);
    // Members' numbers lie at different offsets from a cache line, between bytes that must not change.
    const std::size_t before = (1 + rank() % 5) * sizeof(T), after = 100;
    const Block block(*group_.exchange_allocator(), before + n * sizeof(T) + after);
    std::memset(block.p, 0x5a, before + n * sizeof(T) + after);
    T* const x = reinterpret_cast<T*>(block.p + before);
    std::memcpy(x, p, n * sizeof(T));
    operation(x);
    std::memcpy(p, x, n * sizeof(T));
    const auto intact = [&](std::byte* from, std::size_t bytes) {
      return std::all_of(from, from + bytes, [](std::byte b) { return b == std::byte{0x5a}; });
    };
    expect(intact(block.p, before) && intact(block.p + before + n * sizeof(T), after),
           "memory beyond the numbers was changed");
  }

  struct Block {
    Block(lockstep::ExchangeAllocator& from, std::size_t bytes)
        : allocator(from), p(from.allocate(bytes)) {
      // A group that has ended allocates nothing.
      if (p == nullptr) throw lockstep::CollectiveAborted("no memory after an end");
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() { allocator.release(p); }
    lockstep::ExchangeAllocator& allocator;
    std::byte* p;
  };

  Group group_;
  Where where_;
  std::size_t calls_ = 0;
};

}  // namespace contract
