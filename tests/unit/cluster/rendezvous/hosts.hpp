/// \file
/// Members of a job with a custom /etc/hosts: each is a process with its own mount namespace.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/mount_namespace.hpp"
#include "unit/cluster/rendezvous/support.hpp"

namespace rendezvous_test {

/// A hosts file for some processes, which can be appended to while they run.
class Hosts {
 public:
  explicit Hosts(std::string_view lines) {
    file_ = ::mkstemp(path_.data());
    REQUIRE(file_ >= 0);
    append(lines);
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
  ~Hosts() {
    ::close(file_);
    ::unlink(path_.c_str());
  }
  void append(std::string_view lines) {
    REQUIRE(::write(file_, lines.data(), lines.size()) == static_cast<ssize_t>(lines.size()));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/lockstep_hosts_XXXXXX";
  int file_ = -1;
};

/// A process that runs `body` with these hosts; `result()` returns the result. Must be created
/// while the test has a single thread.
class Guest {
 public:
  Guest(const Hosts& hosts, const std::function<std::string()>& body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    std::fflush(nullptr);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::alarm(60);
      for (const int number : {SIGSEGV, SIGABRT, SIGTERM}) ::signal(number, SIG_DFL);
      std::string output = "no mount namespace";
      if (enter(hosts)) try {
          output = body();
        } catch (const std::exception& error) {
          output = error.what();
        }
      (void)!::write(ends[1], output.data(), output.size());
      ::_exit(0);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;
  ~Guest() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(pipe_);
  }

  /// The return value of the body, or the message of its exception.
  std::string result() {
    std::string all;
    char chunk[512];
    for (ssize_t n; (n = ::read(pipe_, chunk, sizeof chunk)) > 0;)
      all.append(chunk, static_cast<std::size_t>(n));
    return all;
  }

  static bool possible() {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(testing::enter_mount_namespace() ? 0 : 1);
    int status = 1;
    ::waitpid(pid, &status, 0);
    return status == 0;
  }

 private:
  static bool enter(const Hosts& hosts) {
    return testing::enter_mount_namespace() &&
           ::mount(hosts.path().c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
  }

  pid_t pid_ = -1;
  int pipe_ = -1;
};

}  // namespace rendezvous_test
