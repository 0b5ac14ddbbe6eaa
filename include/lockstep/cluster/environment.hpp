/// \file
/// Environment variables, as a function, so that tests need no setenv. Invariant: a variable that
/// is empty counts as one that is not there.
#pragma once

#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// Gives the value of a variable, or nothing.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

/// The variables of this process.
LOCKSTEP_COLD_DECL Environment process_environment();

namespace detail {

LOCKSTEP_COLD_DECL std::optional<std::string> variable(const Environment& environment,
                                                       const std::string& name);

/// A variable that is a whole number of at most `most`.
/// \throws ClusterError if it is there and is none.
LOCKSTEP_COLD_DECL std::optional<std::size_t> number_variable(
    const Environment& environment, const std::string& name,
    std::size_t most = std::numeric_limits<std::size_t>::max());

/// The first of `names` that is set; nothing if none is.
LOCKSTEP_COLD_DECL std::optional<std::size_t> number_variable(
    const Environment& environment, std::initializer_list<const char*> names);

LOCKSTEP_COLD_DECL bool any_variable(const Environment& environment,
                                     std::initializer_list<const char*> names);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/environment.ipp"
#endif
