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
#include "lockstep/core/utf8.hpp"

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

/// True for one line of UTF-8 of readable length, without control characters, those of a terminal with
/// eight bits included.
inline bool fit_to_print(std::string_view message) {
  for (std::size_t i = 0; i < message.size(); ++i) {
    const auto byte = static_cast<unsigned char>(message[i]);
    if (byte < ' ' || byte == 0x7F) return false;
    if (byte == 0xC2 && static_cast<unsigned char>(message[i + 1]) < 0xA0) return false;
  }
  return lockstep::detail::is_utf8(message) && message.size() < 1200;
}

}  // namespace cluster_test
