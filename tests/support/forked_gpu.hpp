/// \file
/// The GPU of tests that fork. A process that has initialized CUDA cannot fork workers that use it.
/// Invariant: this process never initializes CUDA. It probes for a GPU in a child process, and
/// without one installs HostGpu, which the workers inherit.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "support/test_gpu.hpp"

namespace testing {

/// Construct it before the first fork, and open no device in this process.
/// \code
///   const testing::ForkedGpu gpu;
///   Processes job(2, [](Here&) { train(ls::MultiWorkerMirrored<ls::Cuda>{}); });
/// \endcode
class ForkedGpu {
 public:
  ForkedGpu() {
    if (!child_finds_gpu()) host_.emplace();
  }
  bool is_real() const { return !host_; }

 private:
  static bool child_finds_gpu() {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(has_gpu() ? 0 : 1);
    int status = -1;
    return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
  }

  std::optional<HostGpu> host_;
};

}  // namespace testing
