/// \file
/// Environment variables as a function, so that tests need no setenv. Invariants: an empty variable
/// counts as unset; so does one that Kubernetes sets for a Service of the same name.
#pragma once

#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// Returns the value of a variable, or nullopt.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

/// The variables of this process.
LOCKSTEP_COLD_DECL Environment process_environment();

namespace detail {

/// True for "tcp://10.0.0.1:80" in a variable NAME_PORT: Kubernetes sets it in each pod for a Service
/// called NAME, so LOCKSTEP_PORT for a Service "lockstep" and MASTER_PORT for one called "master".
LOCKSTEP_COLD_DECL bool is_service_port(const std::string& name, const std::string& value);

/// The value of a variable; nullopt if it is unset, empty, or that of a Service.
LOCKSTEP_COLD_DECL std::optional<std::string> variable(const Environment& environment,
                                                       const std::string& name);

/// A variable that holds an integer from 0 to `most`. \throws ClusterError if it holds anything
/// else.
LOCKSTEP_COLD_DECL std::optional<std::size_t> number_variable(
    const Environment& environment, const std::string& name,
    std::size_t most = std::numeric_limits<std::size_t>::max());

/// The first of `names` that is set; nullopt if none is. \throws ClusterError as above.
LOCKSTEP_COLD_DECL std::optional<std::size_t> number_variable(
    const Environment& environment, std::initializer_list<const char*> names);

/// True if at least one of `names` is set.
LOCKSTEP_COLD_DECL bool any_variable(const Environment& environment,
                                     std::initializer_list<const char*> names);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/environment.ipp"
#endif
