#pragma once

#include "lockstep/collectives/collective_call.hpp"

#include <algorithm>
#include <array>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

const char* CollectiveCall::name() const {
  constexpr std::array names{"all_reduce", "broadcast", "all_gather", "barrier"};
  return names[std::min<std::size_t>(static_cast<std::size_t>(operation), names.size() - 1)];
}

std::string CollectiveCall::text() const {
  if (operation == Operation::barrier) return name();
  constexpr std::array kinds{"byte", "float", "int", "uint"};
  return format_text("{} of {} elements of {}{}", name(), n,
                     kinds[static_cast<std::size_t>(kind) % kinds.size()], 8 * element);
}

std::string CollectiveCall::description() const {
  std::string all = text();
  if (m > 0) all += format_text(" with {} sums", m);
  if (operation == Operation::broadcast) all += format_text(" from replica {}", root);
  return all;
}

void throw_bad_root(std::size_t root, std::size_t size) {
  throw UsageError("broadcast: root is {}; it must be below the group's size, {}", root, size);
}

}  // namespace lockstep::detail
