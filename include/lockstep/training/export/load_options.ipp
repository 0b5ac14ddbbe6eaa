#pragma once

#include "lockstep/training/export/load_options.hpp"

#include <algorithm>
#include <cstddef>
#include <ostream>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {
namespace detail {

/// Whether a pattern matches a name. Linear in the length of the name for each star: on a mismatch
/// only the last star takes one more character.
[[gnu::cold]] inline bool glob_matches(std::string_view pattern, std::string_view name) {
  constexpr std::size_t none = std::string_view::npos;
  std::size_t p = 0, n = 0, star = none, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != none) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace detail

bool NamePatterns::match(std::string_view name) const {
  return std::any_of(begin(), end(), [&](const std::string& pattern) {
    return detail::glob_matches(pattern, name);
  });
}

std::string to_string(const LoadReport& report) {
  std::string text;
  const auto add = [&](std::string_view what, const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) add_item(list, ", ", detail::printable(name, 80));
    if (!names.empty() || what == "loaded")
      text += format_text("{} {}{}{}\n", what, names.size(), names.empty() ? "" : ": ", list);
  };
  add("loaded", report.loaded);
  add("missing in the file", report.missing);
  add("not selected", report.skipped);
  add("unused in the file", report.unused);
  return text;
}
std::ostream& operator<<(std::ostream& out, const LoadReport& report) {
  return out << to_string(report);
}

}  // namespace lockstep
