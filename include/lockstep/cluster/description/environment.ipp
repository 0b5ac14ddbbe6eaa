#pragma once

#include "lockstep/cluster/description/environment.hpp"

#include <cstdlib>

#include "lockstep/core/error.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

namespace detail {

bool is_service_port(const std::string& name, const std::string& value) {
  return name.ends_with("_PORT") && (value.starts_with("tcp://") || value.starts_with("udp://") ||
                                     value.starts_with("sctp://"));
}

std::optional<std::string> variable(const Environment& environment, const std::string& name) {
  auto value = environment(name);
  return value && (value->empty() || is_service_port(name, *value)) ? std::nullopt : value;
}

std::optional<std::size_t> number_variable(const Environment& environment, const std::string& name,
                                           std::size_t most) {
  const auto value = variable(environment, name);
  if (!value) return std::nullopt;
  const auto number = whole_number<std::size_t>(*value);
  if (!number)
    throw ClusterError("{}={} is not a non-negative integer; correct it, or unset it", name,
                       quote(*value));
  if (*number > most)
    throw ClusterError("{}={} is too large; the maximum is {}", name, quote(*value), most);
  return number;
}

std::optional<std::size_t> number_variable(const Environment& environment,
                                           std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto number = number_variable(environment, std::string(name))) return number;
  return std::nullopt;
}

bool any_variable(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (variable(environment, name)) return true;
  return false;
}

}  // namespace detail

}  // namespace lockstep
