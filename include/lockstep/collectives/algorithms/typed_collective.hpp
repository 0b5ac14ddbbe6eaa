/// \file
/// The typed operations of a group whose own ones move bytes.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "lockstep/collectives/algorithms/collective_call.hpp"
#include "lockstep/collectives/algorithms/sum_parts.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// The base of `Group`, which befriends it and has the operations of ByteCollective as
///
///     reduce(call, p, add, sums)     scatter(call, p, add, ranges, from)   wait(call)
///     send(call, p)                  gather(call, p, out)              gather(call, p, ranges)
template <class Group>
class TypedCollective {
 public:
  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }

  /// Replaces p[0..n) and sums[0..m) with their sums over all members.
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>,
                  "lockstep: all_reduce adds numbers; give it an arithmetic type");
    group().reduce(CollectiveCall::of<T>(Operation::all_reduce, n, m),
                   reinterpret_cast<std::byte*>(p), additions_of<T>, sums);
  }

  /// See ReducesBfloat16.
  void all_reduce_bfloat16(bfloat16* p, std::size_t n) {
    group().reduce(CollectiveCall::of<bfloat16>(Operation::all_reduce, n),
                   reinterpret_cast<std::byte*>(p), additions_of<bfloat16>, nullptr);
  }

  /// Replaces p[0..n) with the root's.
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (root >= group().size()) {
      group().abort();
      throw_bad_root(root, group().size());
    }
    group().send(CollectiveCall::of<T>(Operation::broadcast, n, 0, root),
                 reinterpret_cast<std::byte*>(p));
  }

  /// out[r n..(r + 1) n) becomes p[0..n) of member r. p may be this member's own part of `out`;
  /// otherwise they must not overlap.
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    group().gather(CollectiveCall::of<T>(Operation::all_gather, n),
                   reinterpret_cast<const std::byte*>(p), reinterpret_cast<std::byte*>(out));
  }

  /// p[ranges[rank]] becomes the sum over all members; see ReduceScatters.
  template <class T>
  void reduce_scatter(T* p, std::span<const Slice> ranges) {
    reduce_scatter(p, ranges, Slice{0, group().size()});
  }
  /// The same over the members `from`. \throws UsageError if there are none.
  template <class T>
  void reduce_scatter(T* p, std::span<const Slice> ranges, Slice from) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>,
                  "lockstep: reduce_scatter adds numbers; give it an arithmetic type");
    group().scatter(call_of<T>(Operation::reduce_scatter, ranges, from),
                    reinterpret_cast<std::byte*>(p), additions_of<T>, ranges, from);
  }

  /// p[ranges[r]] becomes that of member r, for each r.
  template <class T>
  void all_gather(T* p, std::span<const Slice> ranges) {
    static_assert(std::is_trivially_copyable_v<T>);
    group().gather(call_of<T>(Operation::gather_ranges, ranges), reinterpret_cast<std::byte*>(p),
                   ranges);
  }

  /// Returns when all members have called it.
  void barrier() { group().wait(CollectiveCall{}); }

 private:
  using Operation = CollectiveCall::Operation;
  friend Group;
  TypedCollective() = default;

  template <class T>
  CollectiveCall call_of(Operation operation, std::span<const Slice> ranges) {
    return call_of<T>(operation, ranges, {0, group().size()});
  }
  template <class T>
  CollectiveCall call_of(Operation operation, std::span<const Slice> ranges, Slice from) {
    try {
      return CollectiveCall::of<T>(operation, ranges, group().size(), from);
    } catch (const UsageError&) {
      group().abort();
      throw;
    }
  }
  Group& group() { return static_cast<Group&>(*this); }
};

}  // namespace lockstep::detail
