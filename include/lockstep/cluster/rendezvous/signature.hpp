/// \file
/// What must be equal on all ranks. Invariant: a difference is told by its field, both ranks and
/// both values, in printable characters, short enough for a line, and so that the values shown
/// differ.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

/// `value` in quotes, from shortly before `difference` on if it is long.
inline std::string shown_from(std::string_view value, std::size_t difference) {
  constexpr std::size_t lead = 24, fits = 72;
  if (value.size() <= fits || difference <= lead) return shown(value);
  return "..." + shown(value.substr(std::min(difference - lead, value.size())));
}

/// The first field in which `a` and `b` differ, as a sentence; nothing if there is none.
/// `name_a` and `name_b` are "rank 0 (10.0.0.1:12345)" and the like.
inline std::optional<std::string> difference(std::string_view part, const std::string& name_a,
                                             const std::vector<SignatureField>& a,
                                             const std::string& name_b,
                                             const std::vector<SignatureField>& b) {
  const auto value_of = [](const std::vector<SignatureField>& fields, const std::string& name) {
    const auto i = std::find_if(fields.begin(), fields.end(),
                                [&](const SignatureField& field) { return field.first == name; });
    return i == fields.end() ? nullptr : &i->second;
  };
  const auto differ = [&](const std::string& field, const std::string* x, const std::string* y) {
    std::size_t at = 0;
    if (x && y)
      while (at < x->size() && at < y->size() && (*x)[at] == (*y)[at]) ++at;
    const auto says = [at](const std::string* value) {
      return value ? shown_from(*value, at) : std::string("nothing");
    };
    return text({part, ": ", name_a, " and ", name_b, " differ in ", shown(field), ": ", says(x),
                 " and ", says(y), "; start all ranks with the same program, options and data"});
  };
  for (const auto& [name, value] : a) {
    const std::string* const other = value_of(b, name);
    if (!other || *other != value) return differ(name, &value, other);
  }
  for (const auto& [name, value] : b)
    if (!value_of(a, name)) return differ(name, nullptr, &value);
  return std::nullopt;
}

}  // namespace lockstep::detail
