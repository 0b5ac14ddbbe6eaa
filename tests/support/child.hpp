/// \file
/// Runs parts of a test in a separate process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/core/process/cores.hpp"

namespace testing {

/// Runs `body` in a forked child. Returns its exit status; -1 after one minute.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 99;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    } catch (...) {
    }
    ::_exit(status);
  }
  for (int i = 0; i < 6000; ++i) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

using Environment = std::vector<std::pair<const char*, const char*>>;

/// Runs this program's test `name` in a new process with additional environment variables, bound to
/// one core if `cores` is 1. Returns its exit status.
inline int in_process(const char* name, const Environment& environment, int cores = 0) {
  return in_child([&] {
    ::setenv("OMP_WAIT_POLICY", "passive", 1);  // no spinning: tests share cores
    for (const auto& [key, value] : environment) ::setenv(key, value, 1);
    const lockstep::detail::Cores all;
    if (cores == 1) all.share(static_cast<std::size_t>(all.count()), 0).bind();
    ::execl("/proc/self/exe", "test", name, nullptr);
    return 98;
  });
}

}  // namespace testing
