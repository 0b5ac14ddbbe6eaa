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

/// A worker's replicas, and the machine and the cores where they run.
struct WorkerPlace {
  std::size_t replicas = 0, threads = 0;  ///< threads of each replica; 0: its share of the cores
  bool binds = false;                     ///< its replicas may be bound to cores
  std::string machine{};  ///< the kernel's boot id; others add the address of the worker
  std::string cores{};    ///< Cores::bits()

  static WorkerPlace here(std::size_t replicas, std::size_t threads, bool may_bind) {
    std::string machine;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
    const Cores cores;
    return {replicas, threads, may_bind && cores.are_known(), machine.empty() ? "?" : machine,
            cores.bits()};
  }

  /// As it travels to the other workers.
  std::string text() const {
    return lockstep::text({replicas, " ", threads, " ", binds ? 1 : 0, " ", machine, " ", cores});
  }
  /// Nothing if it is no such text.
  static std::optional<WorkerPlace> parse(const std::string& text) {
    std::istringstream words(text);
    std::string replicas, threads, binds, more;
    WorkerPlace place;
    words >> replicas >> threads >> binds >> place.machine >> place.cores;
    if (words.fail() || words >> more) return std::nullopt;
    place.replicas = whole_number<std::size_t>(replicas).value_or(0);
    const auto each = whole_number<std::size_t>(threads);
    if (place.replicas == 0 || !each || (binds != "0" && binds != "1")) return std::nullopt;
    place.threads = *each;
    place.binds = binds == "1";
    return place;
  }

  std::size_t core_count() const {
    return static_cast<std::size_t>(std::count(cores.begin(), cores.end(), '1'));
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
  std::size_t replicas = 0;    ///< its own among them
  std::size_t first = 0;       ///< its first one's place among them
  bool is_one_machine = true;  ///< the whole job runs there
  bool bind = true;            ///< each is to be bound to its share of the cores

  CoreSharers(std::span<const WorkerPlace> places, std::size_t rank) {
    const WorkerPlace& mine = places[rank];
    bool are_alike = true;
    for (std::size_t r = 0; r < places.size(); ++r) {
      const WorkerPlace& place = places[r];
      is_one_machine = is_one_machine && place.machine == mine.machine;
      if (r != rank && !place.shares_cores_with(mine)) continue;
      are_alike =
          are_alike && place.binds && place.cores == mine.cores && place.threads == mine.threads;
      if (r < rank) first += place.replicas;
      replicas += place.replicas;
    }
    const std::size_t cores = mine.core_count();
    // What is left over in a division of the cores is no free core for anybody.
    const bool is_full = mine.threads == 0   ? replicas > 1
                         : mine.threads == 1 ? replicas >= cores
                                             : replicas * mine.threads == cores;
    bind = are_alike && is_full && places.size() > 1;
  }

  /// The share of the worker's i-th replica.
  Cores cores(std::size_t i) const { return Cores().share(replicas, first + i); }
};

}  // namespace lockstep::detail
