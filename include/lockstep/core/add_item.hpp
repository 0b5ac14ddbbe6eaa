/// \file
/// Lists in messages.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Adds `item` to a list of texts, with `between` after what is there.
inline void add_item(std::string& list, std::string_view between, std::string_view item) {
  if (!list.empty()) list += between;
  list += item;
}

}  // namespace lockstep
