/// \file
/// Resources shared by the workers of lockstep-run: a secret, a job id, and ports of this machine.
/// Invariant: the secret is readable by this user only, and is removed when the launcher exits.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/cluster/description/spec.hpp>

#include "run_child.hpp"
#include "run_secret.hpp"

namespace lockstep_run {

/// `count` random bytes as hexadecimal digits.
inline std::string random_text(std::size_t count) {
  std::string bytes(count, '\0'), result;
  if (::getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count))
    fail("cannot get random bytes");
  for (const char c : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    result += digits[static_cast<unsigned char>(c) >> 4];
    result += digits[static_cast<unsigned char>(c) & 15];
  }
  return result;
}

/// A secret that only this user can read: in an anonymous file (memfd), which disappears
/// with the launcher even if it is killed; otherwise in a file with mode 0600, removed by the
/// destructor.
class SecretFile {
 public:
  explicit SecretFile(std::string_view secret) {
    if (keep_in_memory(secret)) return;
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder && *folder ? folder : "/tmp") + "/lockstep-secret-XXXXXX";
    const Descriptor file(::mkstemp(path_.data()));
    if (file.number() < 0) fail(path_);
    write_all(file.number(), secret);
    write_all(file.number(), "\n");
  }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  ~SecretFile() {
    if (memory_.number() < 0) ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  /// The path refers to the launcher's descriptor instead of an inherited one: a wrapper script may
  /// close unknown descriptors and reuse the number for another file.
  bool keep_in_memory(std::string_view secret) {
    memory_ = Descriptor(::memfd_create("lockstep-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (memory_.number() < 0) return false;
    path_ = fmt::format("/proc/{}/fd/{}", ::getpid(), memory_.number());
    const bool written =
        ::fchmod(memory_.number(), 0600) == 0 &&
        ::write(memory_.number(), secret.data(), secret.size()) ==
            static_cast<ssize_t>(secret.size()) &&
        ::write(memory_.number(), "\n", 1) == 1 &&
        ::fcntl(memory_.number(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0;
    // /proc/PID/fd is not accessible if the program file is not readable (not dumpable).
    if (written && ::prctl(PR_GET_DUMPABLE) == 1 && ::access(path_.c_str(), R_OK) == 0) return true;
    memory_.close();
    return false;
  }

  Descriptor memory_;
  std::string path_;
};

/// Reserves a free port on 127.0.0.1. Only a listener with SO_REUSEADDR, such as the chief of a
/// job, can bind to it while this object lives.
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const int yes = 1;
    auto* const place = reinterpret_cast<sockaddr*>(&address);
    if (::setsockopt(socket_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        ::bind(socket_.number(), place, size) != 0 ||
        ::getsockname(socket_.number(), place, &size) != 0)
      fail("no free port on 127.0.0.1");
    address_ = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  }
  const std::string& address() const { return address_; }

 private:
  Descriptor socket_;
  std::string address_;
};

/// A job of local workers, followed by `servers` parameter servers.
class LocalJob {
 public:
  LocalJob(std::size_t workers, std::size_t servers)
      : ports_(workers + servers), id_("run-" + random_text(8)) {
    for (const Port& port : ports_)
      cluster_.add(
          cluster_.world_size() < workers ? lockstep::TaskType::worker : lockstep::TaskType::ps,
          port.address());
  }

  std::size_t workers() const { return ports_.size(); }
  /// The host of a worker that does not run on this machine: none.
  std::string host(std::size_t) const { return {}; }
  /// The environment of one worker.
  std::vector<std::pair<std::string, std::string>> variables(std::size_t rank) const {
    return {{"TF_CONFIG", cluster_.tf_config(cluster_.task(rank))},
            {"LOCKSTEP_LAUNCHER", "tf_config"},
            {"LOCKSTEP_JOB_ID", id_},
            {"LOCKSTEP_RANK", std::to_string(rank)},
            {"LOCKSTEP_SECRET_FILE", secret_.path()}};
  }
  /// Variables to unset, since they may describe another job.
  static std::vector<std::string> foreign_variables() {
    return {"LOCKSTEP_SECRET",     "LOCKSTEP_WORLD_SIZE", "LOCKSTEP_COORDINATOR",
            "LOCKSTEP_PORT",       "LOCKSTEP_BIND",       "LOCKSTEP_DATA_ADDRESS",
            "LOCKSTEP_INTERFACE",  "LOCKSTEP_DATA_PORTS", "LOCKSTEP_PORT_RANGE",
            "LOCKSTEP_MIN_WORKERS"};
  }

 private:
  std::vector<Port> ports_;
  std::string id_;
  SecretFile secret_{SecretText().text()};
  lockstep::ClusterSpec cluster_;
};

}  // namespace lockstep_run
