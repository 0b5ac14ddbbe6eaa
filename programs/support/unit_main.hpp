/// \file
/// The main function of programs that consist of units.
#pragma once

#include <filesystem>
#include <string>

#include "support/program.hpp"
#include "support/units.hpp"

namespace support {

/// Body of main: completes `program` with its name and its units' strategy, then runs the unit
/// named `options_of(options)`, with the update policy.
template <class OptionsOf>
int run_unit(Program program, int argc, char** argv, OptionsOf&& options_of) {
  program.name = std::filesystem::path(argv[0]).filename().string();
  if (!units().empty()) {
    program.replica_limit = units().begin()->second.replica_limit;
    program.has_workers = units().begin()->second.has_workers;
    program.has_servers = units().begin()->second.has_servers;
    program.counts_devices = units().begin()->second.counts_devices;
    program.has_updates = units().begin()->second.has_updates;
  }
  return run(program, argc, argv, [&](Job& job) {
    const std::string& wire = job.options().wire;
    std::string update = job.options().update;
    if (update == "diloco") update = "local";  // with other numbers; see strategy.hpp
    const std::string options =
        options_of(job.options()) +
        (update.empty() || update == "replicated" ? "" : " --update " + update) +
        (wire.empty() || wire == "float32" ? "" : " --wire");
    const auto unit = units().find(options);
    if (unit == units().end()) {
      std::string built;
      for (const auto& entry : units()) built += (built.empty() ? "" : ", ") + entry.first;
      throw NotBuilt(options + ": this program was built with " + built +
                     " only; add it to the lists in programs/CMakeLists.txt");
    }
    unit->second.train(job);
  });
}

}  // namespace support
