/// \file
/// The units of a program: one source file that the build compiles once for each combination of the
/// options that select types. Invariant: each unit registers itself before main begins.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "support/job.hpp"
#include "support/strategy.hpp"

#define LOCKSTEP_TEXT_OF(x) #x
#define LOCKSTEP_TEXT(x) LOCKSTEP_TEXT_OF(x)
#ifdef LOCKSTEP_POLICY
#define LOCKSTEP_POLICY_OPTION " --update " LOCKSTEP_TEXT(LOCKSTEP_POLICY)
#elif defined(LOCKSTEP_WIRE)
#define LOCKSTEP_POLICY_OPTION " --wire"  // one unit for all formats
#else
#define LOCKSTEP_POLICY_OPTION ""
#endif

namespace support {

/// One unit: its training function, and the properties of its strategy.
struct UnitEntry {
  void (*train)(Job&);
  std::size_t replica_limit;
  bool has_workers, has_servers;
  bool counts_devices;
  bool has_updates;
};

/// The registry of this program's units, by the options that select them: "--optimizer sgd", with
/// " --update sharded" or " --wire" for a policy that is not the default.
std::map<std::string, UnitEntry>& units();
void add_unit(const char* options, const UnitEntry& entry);
/// Registers a unit; define one object of it at namespace scope.
template <class Strategy>
struct Unit {
  Unit(const char* options, void (*train)(Job&)) {
    add_unit(options, {train, replica_limit<Strategy>(), has_workers<Strategy>,
                       has_servers<Strategy>, counts_devices<Strategy>, has_updates<Strategy>});
  }
};

}  // namespace support
