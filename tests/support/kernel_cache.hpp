/// \file
/// A temporary cache folder for compiled kernels and tuning results.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace testing {

/// Scope in which LOCKSTEP_KERNEL_CACHE names a folder that is empty at first.
class OwnKernelCache {
 public:
  OwnKernelCache() {
    if (const char* const v = std::getenv(name)) before_ = v;
    std::filesystem::remove_all(folder_);
    setenv(name, folder_.c_str(), 1);
  }
  ~OwnKernelCache() {
    if (before_)
      setenv(name, before_->c_str(), 1);
    else
      unsetenv(name);
    std::filesystem::remove_all(folder_);
  }
  std::vector<std::filesystem::path> files() const {
    const std::filesystem::directory_iterator all(folder_);
    return {begin(all), end(all)};
  }
  OwnKernelCache(const OwnKernelCache&) = delete;
  OwnKernelCache& operator=(const OwnKernelCache&) = delete;

 private:
  static constexpr const char* name = "LOCKSTEP_KERNEL_CACHE";
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("lockstep-cache-" + std::to_string(getpid()));
  std::optional<std::string> before_;
};

}  // namespace testing
