#pragma once

#include "lockstep/strategies/job/worker_place.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

WorkerPlace WorkerPlace::here(std::size_t replicas, std::size_t threads, bool may_bind,
                              const std::string& devices) {
  std::string machine;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
  const Cores cores = Cores::of_process();
  return {replicas,     threads, may_bind && cores.are_known(), machine.empty() ? "?" : machine,
          cores.bits(), devices};
}

std::string WorkerPlace::text() const {
  return format_text("{} {} {} {} {} {} {}", replicas, threads, binds ? 1 : 0, machine, cores,
                     devices, devices_connect ? 1 : 0);
}

std::optional<WorkerPlace> WorkerPlace::parse(const std::string& text) {
  std::istringstream words(text);
  std::string replicas, threads, binds, connect, more;
  WorkerPlace place;
  words >> replicas >> threads >> binds >> place.machine >> place.cores >> place.devices >> connect;
  if (words.fail() || words >> more) return std::nullopt;
  const auto count = whole_number<std::size_t>(replicas);
  const auto each = whole_number<std::size_t>(threads);
  if (!count || (*count == 0 && place.devices == "-") || !each || (binds != "0" && binds != "1") ||
      (connect != "0" && connect != "1"))
    return std::nullopt;
  place.replicas = *count;
  place.threads = *each;
  place.binds = binds == "1";
  place.devices_connect = connect == "1";
  return place;
}

std::size_t WorkerPlace::core_count() const {
  return static_cast<std::size_t>(std::count(cores.begin(), cores.end(), '1'));
}

std::vector<std::string> WorkerPlace::device_names() const {
  std::vector<std::string> names;
  std::istringstream all(devices == "-" ? "" : devices);
  for (std::string name; std::getline(all, name, ',');) names.push_back(name);
  return names;
}

std::vector<std::string> WorkerPlace::sorted_names() const {
  std::vector<std::string> sorted;
  for (const std::string& name : device_names())
    sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), name), name);
  return sorted;
}

std::size_t WorkerPlace::device(std::size_t i) const {
  const std::vector<std::string> names = device_names(), sorted = sorted_names();
  const std::string& name = sorted[(first_device + i) % sorted.size()];
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

bool WorkerPlace::shares_cores_with(const WorkerPlace& other) const {
  if (machine != other.machine) return false;
  const std::size_t both = std::min(cores.size(), other.cores.size());
  for (std::size_t i = 0; i < both; ++i)
    if (cores[i] == '1' && other.cores[i] == '1') return true;
  return false;
}

void share_devices(std::span<WorkerPlace> places) {
  for (std::size_t r = 0; r < places.size(); ++r) {
    const std::vector<std::string> seen = places[r].sorted_names();
    if (seen.empty()) continue;
    std::size_t workers = 0, before = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i].sorted_names() != seen) continue;
      ++workers;
      if (i >= r) continue;
      ++before;
      places[r].first_device += places[i].replicas;
    }
    if (places[r].replicas == 0)
      places[r].replicas = std::max<std::size_t>(slice_of(seen.size(), workers, before).count, 1);
  }
}

CoreSharers::CoreSharers(std::span<const WorkerPlace> places, std::size_t rank) {
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
  // The remainder of dividing the cores by the replicas does not count as a free core.
  const bool is_full = mine.threads == 0   ? replicas > 1
                       : mine.threads == 1 ? replicas >= cores
                                           : replicas * mine.threads == cores;
  bind = are_alike && is_full && places.size() > 1;
}

}  // namespace lockstep::detail
