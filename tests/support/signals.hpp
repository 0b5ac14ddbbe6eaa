/// \file
/// The threads of the process to which a signal can be delivered (Linux).
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace testing {

/// Ids of the threads that do not block `signal`. Threads that are exiting are left out: the kernel
/// lists a thread for a moment after its join.
inline std::set<int> threads_that_take(int signal) {
  constexpr unsigned exiting = 0x4;  // PF_EXITING, set before the join returns
  std::set<int> result;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::uint64_t blocked = 0;
    for (std::string word; status >> word;)
      if (word == "SigBlk:") status >> std::hex >> blocked;
    if ((blocked >> (signal - 1) & 1) != 0) continue;
    std::string text;
    std::getline(std::ifstream(task.path() / "stat"), text);
    const auto name_end = text.rfind(')');
    if (name_end == std::string::npos) continue;  // the thread has ended since it was listed
    std::istringstream fields(text.substr(name_end + 1));
    std::string skipped;
    for (int i = 0; i < 6; ++i) fields >> skipped;  // fields from state to tpgid
    unsigned flags = 0;
    if (fields >> flags && (flags & exiting) == 0) result.insert(std::stoi(task.path().filename()));
  }
  return result;
}

}  // namespace testing
