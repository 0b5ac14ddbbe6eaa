/// \file
/// The sum of what the processes of a group have sent. Invariant: the same order of additions as
/// between threads (sum_members.hpp), so both give the same bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "lockstep/collectives/sum_members.hpp"

namespace lockstep::detail {

/// A part of each member: bytes that hold numbers of type T, aligned for it.
using Parts = const std::byte* const*;

template <class T>
void sum_parts_tree(T* to, Parts part, std::size_t members, std::size_t at, std::size_t n) {
  if (members == 1) {
    std::memcpy(to, reinterpret_cast<const T*>(part[0]) + at, n * sizeof(T));
    return;
  }
  const std::size_t left = (members + 1) / 2;
  T right[sum_block];
  sum_parts_tree(to, part, left, at, n);
  sum_parts_tree(right, part + left, members - left, at, n);
  add_to(to, right, n);
}

/// to = the sum of the members' parts, of `bytes` each. `to` may be one of the parts.
template <class T>
void sum_parts(std::byte* to, Parts part, std::size_t members, std::size_t bytes, SumOrder order) {
  const std::size_t n = bytes / sizeof(T);
  T sum[sum_block];
  for (std::size_t at = 0; at < n; at += sum_block) {
    const std::size_t count = std::min(sum_block, n - at);
    if (order == SumOrder::tree) {
      sum_parts_tree(sum, part, members, at, count);
    } else {
      std::memcpy(sum, reinterpret_cast<const T*>(part[0]) + at, count * sizeof(T));
      for (std::size_t r = 1; r < members; ++r)
        add_to(sum, reinterpret_cast<const T*>(part[r]) + at, count);
    }
    std::memcpy(reinterpret_cast<T*>(to) + at, sum, count * sizeof(T));
  }
}

}  // namespace lockstep::detail
