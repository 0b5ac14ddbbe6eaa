#pragma once

#include "lockstep/collectives/collective_call.hpp"

#include <algorithm>
#include <array>

#include "lockstep/core/fmt_core.hpp"

namespace lockstep::detail {

const char* CollectiveCall::name() const {
  constexpr std::array names{"all_reduce", "broadcast", "all_gather", "barrier"};
  return names[std::min<std::size_t>(static_cast<std::size_t>(operation), names.size() - 1)];
}

std::string CollectiveCall::description() const {
  std::string text = fmt::format("{} of {} elements of {} bytes", name(), n, element);
  if (m > 0) text += fmt::format(" with {} sums", m);
  if (operation == Operation::broadcast) text += fmt::format(" from replica {}", root);
  return text;
}

}  // namespace lockstep::detail
