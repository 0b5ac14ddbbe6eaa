#pragma once

#include "lockstep/collectives/algorithms/collective_call.hpp"

#include <algorithm>
#include <array>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/digest64.hpp"

namespace lockstep::detail {

const char* CollectiveCall::name() const {
  constexpr std::array names{"all_reduce",     "broadcast",  "all_gather", "barrier",
                             "reduce_scatter", "all_gather", "message"};
  return names[std::min<std::size_t>(static_cast<std::size_t>(operation), names.size() - 1)];
}

std::string CollectiveCall::text() const {
  if (operation == Operation::barrier) return name();
  constexpr std::array kinds{"byte", "float", "int", "uint", "bfloat"};
  return format_text("{} of {} elements of {}{}", name(), n,
                     kinds[static_cast<std::size_t>(kind) % kinds.size()], 8 * element);
}

std::string CollectiveCall::description() const {
  std::string all = text();
  if (m > 0) all += format_text(" with {} sums", m);
  if (operation == Operation::broadcast || operation == Operation::message)
    all += format_text(" from replica {}", root);
  if (operation == Operation::reduce_scatter || operation == Operation::gather_ranges)
    all += format_text(" in the ranges with digest {:016x}", root);
  return all;
}

std::size_t CollectiveCall::checked_elements(std::span<const Slice> ranges, std::size_t size,
                                             Slice from) {
  if (from.count < 1 || from.first >= size || from.count > size - from.first)
    throw UsageError("ranges: {} members from {} on are not members of a group of {}", from.count,
                     from.first, size);
  if (ranges.size() != size)
    throw UsageError("ranges: there are {}; give one for each of the {} members", ranges.size(),
                     size);
  std::size_t elements = 0, end = 0;
  for (std::size_t r = 0; r < size; ++r) {
    if (ranges[r].count == 0) continue;
    if (ranges[r].first < end)
      throw UsageError("ranges: that of member {} begins at {}, before {}; give ascending ranges",
                       r, ranges[r].first, end);
    end = ranges[r].first + ranges[r].count;
    elements += ranges[r].count;
  }
  return elements;
}

std::uint64_t CollectiveCall::digest_of(std::span<const Slice> ranges, Slice from) {
  static_assert(std::has_unique_object_representations_v<Slice>);
  return Digest64().add(std::as_bytes(ranges)).add(std::as_bytes(std::span(&from, 1))).value();
}

void throw_bad_root(std::size_t root, std::size_t size) {
  throw UsageError("broadcast: root is {}; it must be below the group's size, {}", root, size);
}

void throw_no_pair(std::size_t size) {
  throw UsageError(
      "send, receive: the group has {} members, so that the other one is not determined; make a group "
      "of two, or use broadcast",
      size);
}

}  // namespace lockstep::detail
