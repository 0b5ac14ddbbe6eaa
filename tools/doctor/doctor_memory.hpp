/// \file
/// The memory that a process may still allocate (Linux): of the machine, and of its control groups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace lockstep_doctor {

/// Names of the files of a control group.
struct GroupFiles {
  const char *limit, *used, *inactive, *active;  ///< the last two are lines of memory.stat
};
inline constexpr GroupFiles group_v2{"memory.max", "memory.current", "inactive_file",
                                     "active_file"};
inline constexpr GroupFiles group_v1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                     "total_inactive_file", "total_active_file"};

/// Bytes that the limit of one control group leaves; nullopt if it has none. The page cache counts as
/// used there, but the kernel drops it when a process needs the memory.
inline std::optional<std::int64_t> memory_of_group(const std::filesystem::path& folder,
                                                   const GroupFiles& files) {
  constexpr std::int64_t unlimited = std::int64_t{1} << 60;
  std::int64_t most = 0, used = 0;
  std::ifstream most_file(folder / files.limit), used_file(folder / files.used);
  if (!(most_file >> most) || !(used_file >> used) || most >= unlimited) return std::nullopt;
  std::ifstream statistics(folder / "memory.stat");
  std::string name;
  for (std::int64_t bytes = 0; statistics >> name >> bytes;)
    if (name == files.inactive || name == files.active) used -= bytes;
  return std::max<std::int64_t>(most - std::max<std::int64_t>(used, 0), 0);
}

/// The least of a process' own control group and those above it. `groups` is its /proc/PID/cgroup,
/// `root` where control groups are mounted. Without a namespace of its own a container sees only its
/// group there, as the root.
inline std::optional<std::int64_t> memory_of_groups(const std::string& groups,
                                                    const std::filesystem::path& root) {
  std::optional<std::int64_t> least;
  const auto climb = [&](const std::filesystem::path& mount, std::string_view group,
                         const GroupFiles& files) {
    auto path = std::filesystem::path(group).relative_path();
    for (;;) {
      const auto left = memory_of_group(path.empty() ? mount : mount / path, files);
      if (left) least = std::min(least.value_or(*left), *left);
      if (path.empty()) return;
      path = path.parent_path();
    }
  };
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string_view group = std::string_view(line).substr(second + 1);
    if (controllers == ",,") climb(root, group, group_v2);
    if (controllers.find(",memory,") != std::string::npos) climb(root / "memory", group, group_v1);
  }
  return least;
}

}  // namespace lockstep_doctor
