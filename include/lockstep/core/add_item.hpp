/// \file
/// Joining of texts for lists in messages.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Appends `item` to `list`, with `between` as separator unless the list is empty.
inline void add_item(std::string& list, std::string_view between, std::string_view item) {
  if (!list.empty()) list += between;
  list += item;
}

}  // namespace lockstep
