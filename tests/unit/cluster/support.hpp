/// \file
/// Environments from a table, and the message of an error.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/quote.hpp"

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

/// True for one line of readable length that shows as it is: UTF-8 without control characters, invisible
/// ones and those that change the direction.
inline bool fit_to_print(std::string_view message) {
  return lockstep::detail::printable(message, message.size()) == message && message.size() < 1200;
}

}  // namespace cluster_test
