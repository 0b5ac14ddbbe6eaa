#pragma once

#include "lockstep/training/export/op_values.hpp"

namespace lockstep::detail {

void add_member(OpValue::Group& to, std::string_view& names, OpValue member) {
  const std::string_view name = names.substr(0, names.find(' '));
  names.remove_prefix(name.size() + (name.size() < names.size() ? 1 : 0));
  const bool may_be_absent = name.starts_with('?');
  if (const auto* number = std::get_if<long long>(&member.value);
      may_be_absent && number != nullptr && *number == 1)
    return;
  member.name = may_be_absent ? name.substr(1) : name;
  to.push_back(std::move(member));
}

}  // namespace lockstep::detail
