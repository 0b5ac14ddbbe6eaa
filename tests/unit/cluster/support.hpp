/// \file
/// Environments from a table, and the message of an error.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/core/error.hpp"

namespace cluster_test {

using Variables = std::map<std::string, std::string>;

inline lockstep::Environment environment(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

/// The message of the ClusterError that `f` throws; "no error" if none.
template <class F>
std::string sentence(F&& f) {
  try {
    f();
  } catch (const lockstep::ClusterError& error) {
    return error.what();
  }
  return "no error";
}

/// True for one line of printable ASCII of readable length.
inline bool fit_to_print(const std::string& message) {
  for (const char c : message)
    if (c < ' ' || c > '~') return false;
  return message.size() < 700;
}

}  // namespace cluster_test
