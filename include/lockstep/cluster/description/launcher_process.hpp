/// \file
/// The process that has started this one and its siblings, for launchers whose variables name no job.
#pragma once

#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// The text of /proc/PID/NAME; nullopt if it cannot be read.
inline std::optional<std::string> process_file(const std::string& process, const char* name) {
  std::ifstream file(format_text("/proc/{}/{}", process, name), std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return file.bad() ? std::nullopt : std::optional(std::move(text));
}

/// Field `index` of /proc/PID/stat, counted from the state, which follows the name in parentheses.
inline std::string stat_field(const std::string& text, std::size_t index) {
  const auto name = text.rfind(')');
  if (name == std::string::npos) return {};
  std::size_t first = name + 2;
  for (; index > 0 && first < text.size(); --index) {
    const auto blank = text.find(' ', first);
    first = blank == std::string::npos ? text.size() : blank + 1;
  }
  return first < text.size() ? text.substr(first, text.find(' ', first) - first) : std::string();
}

/// "4711-8675309", process id and start time: the nearest ancestor without `variable`, which the
/// launcher sets in each of its processes, also through shells and wrappers in between. Nullopt if
/// /proc does not show it, or if `process` was not started with the variable.
[[gnu::cold]] inline std::optional<std::string> launcher_process(const std::string& variable,
                                                                 std::string process = "self") {
  constexpr std::size_t parent = 1, start = 19;
  constexpr int most = 64;  // of ancestors
  const std::string own = variable + "=";
  for (int i = 0; i < most; ++i) {
    const auto variables = process_file(process, "environ");
    const auto stat = process_file(process, "stat");
    if (!variables || !stat) return std::nullopt;
    const bool has =
        variables->starts_with(own) || variables->find('\0' + own) != std::string::npos;
    if (!has)
      return i == 0 ? std::nullopt
                    : std::optional(format_text("{}-{}", process, stat_field(*stat, start)));
    process = stat_field(*stat, parent);
    if (process.empty() || process == "0") return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace lockstep::detail
