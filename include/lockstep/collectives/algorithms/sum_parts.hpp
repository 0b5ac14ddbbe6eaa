/// \file
/// Sums of the messages that the processes of a group have sent. Invariant: the additions are those
/// of threads (sum_members.hpp), so both give the same bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "lockstep/collectives/algorithms/sum_members.hpp"

namespace lockstep::detail {

/// One pointer per member, each to bytes that hold values of type T and are aligned for it.
using Parts = const std::byte* const*;

/// `sum_parts` of one element type.
using SumParts = void (*)(std::byte* to, Parts part, std::size_t members, std::size_t bytes,
                          SumOrder order);

/// to = the sum of the members' parts of `bytes` each. `to` may be one of the parts.
template <class T>
void sum_parts(std::byte* to, Parts part, std::size_t members, std::size_t bytes, SumOrder order) {
  const std::size_t n = bytes / sizeof(T);
  SumOf<T> sum[sum_block];
  for (std::size_t at = 0; at < n; at += sum_block) {
    const std::size_t count = std::min(sum_block, n - at);
    if (members == 2)
      add_pair(sum, elements<T>(part[0], at), elements<T>(part[1], at), count);
    else
      add_block<T>(sum, part, members, at, count, order);
    convert(reinterpret_cast<T*>(to) + at, sum, count);
  }
}

/// The additions of one element type: of messages, and in the memory of all members.
struct Additions {
  SumParts parts;
  SumMembers members;
};
template <class T>
inline constexpr Additions additions_of{&sum_parts<T>, &sum_members_from<T>};

}  // namespace lockstep::detail
