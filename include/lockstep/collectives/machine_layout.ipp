#pragma once

#include "lockstep/collectives/machine_layout.hpp"

#include <algorithm>

namespace lockstep {

std::optional<MachineLayout> MachineLayout::of(std::span<const std::string> machines) {
  MachineLayout layout;
  for (std::size_t r = 0; r < machines.size(); ++r) {
    if (r > 0 && machines[r] == machines[r - 1]) {
      ++layout.counts.back();
      continue;
    }
    const auto before = machines.begin() + static_cast<std::ptrdiff_t>(r);
    if (std::find(machines.begin(), before, machines[r]) != before) return std::nullopt;
    layout.counts.push_back(1);
  }
  return layout;
}

std::size_t MachineLayout::most() const { return *std::max_element(counts.begin(), counts.end()); }

std::size_t MachineLayout::lanes() const { return *std::min_element(counts.begin(), counts.end()); }

std::size_t MachineLayout::first(std::size_t machine) const {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(machine),
                         std::size_t{0});
}

std::size_t MachineLayout::machine_of(std::size_t rank) const {
  std::size_t machine = 0;
  while (rank >= counts[machine]) rank -= counts[machine++];
  return machine;
}

std::vector<std::size_t> MachineLayout::members(std::size_t machine) const {
  std::vector<std::size_t> ranks(counts[machine]);
  std::iota(ranks.begin(), ranks.end(), first(machine));
  return ranks;
}

std::vector<std::size_t> MachineLayout::lane(std::size_t index) const {
  std::vector<std::size_t> ranks;
  for (std::size_t machine = 0; machine < machines(); ++machine)
    ranks.push_back(first(machine) + index);
  return ranks;
}

bool MachineLayout::keeps(SumOrder order) const {
  return order == SumOrder::ranks || is_subtree(0, machines());
}

bool MachineLayout::is_subtree(std::size_t first_machine, std::size_t last_machine) const {
  if (last_machine - first_machine <= 1) return true;
  const std::size_t middle = first_machine + (last_machine - first_machine + 1) / 2;
  const std::size_t begin = first(first_machine), end = first(last_machine);
  return first(middle) == begin + (end - begin + 1) / 2 && is_subtree(first_machine, middle) &&
         is_subtree(middle, last_machine);
}

}  // namespace lockstep
