/// \file
/// Environment variables, as a function, so that tests need no setenv. Invariant: a variable that
/// is empty counts as one that is not there.
#pragma once

#include <concepts>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// Gives the value of a variable, or nothing.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

/// The variables of this process.
inline Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

namespace detail {

inline std::optional<std::string> variable(const Environment& environment,
                                           const std::string& name) {
  auto value = environment(name);
  return value && value->empty() ? std::nullopt : value;
}

/// A variable that is a whole number of at most `most`.
/// \throws ClusterError if it is there and is none.
inline std::optional<std::size_t> number_variable(
    const Environment& environment, const std::string& name,
    std::size_t most = std::numeric_limits<std::size_t>::max()) {
  const auto value = variable(environment, name);
  if (!value) return std::nullopt;
  const auto number = whole_number<std::size_t>(*value);
  if (!number)
    throw ClusterError({name, "=", shown(*value),
                        " is no whole number from 0 on; set it right, "
                        "or unset it"});
  if (*number > most)
    throw ClusterError({name, "=", shown(*value), " is too large; the most is ", most});
  return number;
}

/// The first of `names` that is set; nothing if none is.
inline std::optional<std::size_t> number_variable(const Environment& environment,
                                                  std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto number = number_variable(environment, std::string(name))) return number;
  return std::nullopt;
}

inline bool any_variable(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (variable(environment, name)) return true;
  return false;
}

}  // namespace detail
}  // namespace lockstep
