/// \file
/// The arithmetic of an all-reduce between threads or processes. Invariant: the order of additions
/// depends only on the number of members, not on sizes, addresses or timing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "lockstep/core/numbers/bfloat16.hpp"

namespace lockstep {

/// The order in which the members' values are added: `ranks` is ((0 + 1) + 2) + 3, `tree` is
/// (0 + 1) + (2 + 3). Virtual shards need `tree`, because a group with half as many members then
/// computes the same subtrees.
enum class SumOrder { ranks, tree };

namespace detail {

inline constexpr std::size_t sum_block = 1024;  // elements; a block stays in the L1 cache

/// The type in which elements of type T are added; a sum is rounded to T once.
template <class T>
using SumOf = typename ComputedIn<T>::type;

/// to[i] = from[i], converted.
template <class To, class From>
void convert(To* __restrict to, const From* __restrict from, std::size_t n) {
  if constexpr (std::is_same_v<To, From>)
    std::memcpy(to, from, n * sizeof(To));
  else if (n == sum_block)
    for (std::size_t i = 0; i < sum_block; ++i) to[i] = static_cast<To>(from[i]);
  else
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

/// to[i] += from[i]. The branch with a constant count is the loop that g++ vectorizes at -O2.
template <class Sum, class T>
void add_to(Sum* __restrict to, const T* __restrict from, std::size_t n) {
  if (n == sum_block)
    for (std::size_t i = 0; i < sum_block; ++i) to[i] = static_cast<Sum>(to[i] + from[i]);
  else
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<Sum>(to[i] + from[i]);
}

/// a[i] = b[i] = a[i] + b[i]: the all-reduce of two members in one pass.
template <class T>
void add_two(T* __restrict a, T* __restrict b, std::size_t n) {
  if (n == sum_block)
    for (std::size_t i = 0; i < sum_block; ++i) a[i] = b[i] = static_cast<T>(a[i] + b[i]);
  else
    for (std::size_t i = 0; i < n; ++i) a[i] = b[i] = static_cast<T>(a[i] + b[i]);
}

/// to[i] = a[i] + b[i].
template <class Sum, class T>
void add_pair(Sum* __restrict to, const T* a, const T* b, std::size_t n) {
  if (n == sum_block)
    for (std::size_t i = 0; i < sum_block; ++i) to[i] = static_cast<Sum>(a[i] + b[i]);
  else
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<Sum>(a[i] + b[i]);
}

/// A pointer to element `at` of a member's part, which is an array of T or of bytes.
template <class T, class P>
const T* elements(const P* part, std::size_t at) {
  return reinterpret_cast<const T*>(part) + at;
}

/// to[0..n) = the tree sum of the members' elements [at, at + n). The left subtree has
/// (members + 1) / 2 members; n is at most sum_block.
template <class T, class P>
void add_tree(SumOf<T>* to, P* const* part, std::size_t members, std::size_t at, std::size_t n) {
  if (members == 1) return convert(to, elements<T>(part[0], at), n);
  const std::size_t left = (members + 1) / 2;
  SumOf<T> right[sum_block];
  add_tree<T>(to, part, left, at, n);
  add_tree<T>(right, part + left, members - left, at, n);
  add_to(to, right, n);
}

/// to[0..n) = the sum of the members' elements [at, at + n) in `order`; n is at most sum_block.
template <class T, class P>
void add_block(SumOf<T>* to, P* const* part, std::size_t members, std::size_t at, std::size_t n,
               SumOrder order) {
  if (order == SumOrder::tree) return add_tree<T>(to, part, members, at, n);
  convert(to, elements<T>(part[0], at), n);
  for (std::size_t r = 1; r < members; ++r) add_to(to, elements<T>(part[r], at), n);
}

/// Replaces part[r][0..n) of each member r with the sum over all members.
template <class T>
void sum_members(T* const* part, std::size_t members, std::size_t n, SumOrder order) {
  if (members == 1) return;
  SumOf<T> sum[sum_block];
  const auto copy_to_all = [&](const T* values, std::size_t at, std::size_t count) {
    for (std::size_t r = 0; r < members; ++r) std::memcpy(part[r] + at, values, count * sizeof(T));
  };
  for (std::size_t at = 0; at < n; at += sum_block) {
    const std::size_t count = std::min(sum_block, n - at);
    if (members == 2) {
      add_two(part[0] + at, part[1] + at, count);
      continue;
    }
    add_block<T>(sum, part, members, at, count, order);
    if constexpr (std::is_same_v<SumOf<T>, T>) {
      copy_to_all(sum, at, count);
    } else {
      T rounded[sum_block];
      convert(rounded, sum, count);
      copy_to_all(rounded, at, count);
    }
  }
}

/// `sum_members` of one element type, for elements [first, first + n); at most 256 members.
using SumMembers = void (*)(void* const* part, std::size_t members, std::size_t first,
                            std::size_t n, SumOrder order);

template <class T>
void sum_members_from(void* const* part, std::size_t members, std::size_t first, std::size_t n,
                      SumOrder order) {
  T* parts[256];
  for (std::size_t r = 0; r < members; ++r) parts[r] = static_cast<T*>(part[r]) + first;
  sum_members<T>(parts, members, n, order);
}

#ifdef LOCKSTEP_SEPARATE_COMPILATION
extern template void sum_members_from<float>(void* const*, std::size_t, std::size_t, std::size_t,
                                             SumOrder);
extern template void sum_members_from<double>(void* const*, std::size_t, std::size_t, std::size_t,
                                              SumOrder);
extern template void sum_members_from<bfloat16>(void* const*, std::size_t, std::size_t, std::size_t,
                                                SumOrder);
#endif

}  // namespace detail
}  // namespace lockstep
