/// \file
/// Which threads of the process a signal can be delivered to (Linux).
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace testing {

/// Ids of the threads that do not block `signal`.
inline std::set<int> threads_that_take(int signal) {
  std::set<int> result;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::uint64_t blocked = 0;
    for (std::string word; status >> word;)
      if (word == "SigBlk:") status >> std::hex >> blocked;
    if ((blocked >> (signal - 1) & 1) == 0) result.insert(std::stoi(task.path().filename()));
  }
  return result;
}

}  // namespace testing
