/// \file
/// Where the workers of a job run, and who shares cores with whom. Invariant: all workers conclude
/// the same from the same list of places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>

#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/cores.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

/// A worker's replicas, its machine, and the cores that it may use there.
struct WorkerPlace {
  std::size_t replicas = 0;
  std::string machine{};  ///< the kernel's boot id: containers of one machine have the same
  std::string cores{};    ///< Cores::bits()

  static WorkerPlace here(std::size_t replicas) {
    std::string machine;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
    return {replicas, machine.empty() ? "unknown" : machine, Cores().bits()};
  }

  /// As it travels to the other workers.
  std::string text() const { return lockstep::text({replicas, " ", machine, " ", cores}); }
  /// Nothing if it is no such text.
  static std::optional<WorkerPlace> parse(const std::string& text) {
    std::istringstream words(text);
    std::string count, more;
    WorkerPlace place;
    if (!(words >> count >> place.machine >> place.cores) || words >> more) return std::nullopt;
    place.replicas = whole_number<std::size_t>(count).value_or(0);
    if (place.replicas == 0) return std::nullopt;
    return place;
  }

  bool shares_cores_with(const WorkerPlace& other) const {
    if (machine != other.machine) return false;
    const std::size_t both = std::min(cores.size(), other.cores.size());
    for (std::size_t i = 0; i < both; ++i)
      if (cores[i] == '1' && other.cores[i] == '1') return true;
    return false;
  }
};

/// The replicas of a job that share cores with one worker's.
struct CoreSharers {
  std::size_t replicas = 0;     ///< its own among them
  std::size_t first = 0;        ///< its first one's place among them
  bool have_same_cores = true;  ///< all of them may use the same cores
  bool is_one_machine = true;   ///< the whole job runs there

  CoreSharers(std::span<const WorkerPlace> places, std::size_t rank) {
    const WorkerPlace& mine = places[rank];
    for (std::size_t r = 0; r < places.size(); ++r) {
      is_one_machine = is_one_machine && places[r].machine == mine.machine;
      if (r != rank && !places[r].shares_cores_with(mine)) continue;
      have_same_cores = have_same_cores && places[r].cores == mine.cores;
      if (r < rank) first += places[r].replicas;
      replicas += places[r].replicas;
    }
  }

  /// Whether they may use the same cores, and their `threads` leave none of them free.
  bool fill_cores(std::size_t threads) const {
    return have_same_cores && threads >= static_cast<std::size_t>(Cores().count());
  }
  /// The share of the worker's i-th replica.
  Cores cores(std::size_t i) const { return Cores().share(replicas, first + i); }
};

}  // namespace lockstep::detail
