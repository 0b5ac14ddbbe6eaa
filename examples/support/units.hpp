/// \file
/// The units of a program: a source that the build compiles once for each combination of the
/// options that pick types. Invariant: each registers itself before main begins.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "support/job.hpp"
#include "support/strategy.hpp"

#define LOCKSTEP_TEXT_OF(x) #x
#define LOCKSTEP_TEXT(x) LOCKSTEP_TEXT_OF(x)

namespace support {

/// What one unit of this program does, for how many replicas, and whether in many processes.
struct UnitEntry {
  void (*train)(Job&);
  std::size_t replica_limit;
  bool has_workers;
  bool counts_devices;
};

/// The units that this program was built with, by the options that pick them: "--optimizer sgd".
std::map<std::string, UnitEntry>& units();
void add_unit(const char* options, const UnitEntry& entry);
template <class Strategy>
struct Unit {
  Unit(const char* options, void (*train)(Job&)) {
    add_unit(options,
             {train, replica_limit<Strategy>(), has_workers<Strategy>, counts_devices<Strategy>});
  }
};

}  // namespace support
