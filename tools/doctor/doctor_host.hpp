/// \file
/// Collects the facts of this host (Linux). Invariant: what cannot be read is unknown, not an error;
/// nvidia-smi is ended after `gpu_timeout`.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/cluster/description/elastic_options.hpp>
#include <lockstep/cluster/elastic/machine_folder.hpp>
#include <lockstep/core/process/cores.hpp>
#include <lockstep/core/process/file_descriptor.hpp>
#include <lockstep/core/version.hpp>

#include "doctor_data.hpp"
#include "doctor_facts.hpp"
#include "doctor_memory.hpp"

namespace lockstep_doctor {

/// The parts of a host to check, and how.
struct HostOptions {
  std::string save = ".";     ///< folder where files are to be saved
  bool writes = false;        ///< whether to write a file there
  std::string data, program;  ///< "" if none is to be checked
  lockstep::Elastic elastic;  ///< whether and where there are votes
  std::chrono::milliseconds gpu_timeout{10'000}, data_timeout{10'000};
  /// All of it. A file system or a driver that hangs may exceed the two above.
  std::chrono::milliseconds limit{30'000};
};

inline std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

/// The value after "name" and a colon in a file such as /proc/cpuinfo, without blanks; "" if none.
inline std::string value_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// The vector extensions that lockstep's kernels, oneDNN and OpenSSL use, of those in /proc/cpuinfo.
inline std::string known_features(const std::string& flags) {
  std::string result;
  std::istringstream words(flags);
  for (std::string word; words >> word;)
    for (const char* known : {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve"})
      if (word == known) result += (result.empty() ? "" : " ") + word;
  return result;
}

/// Bytes that this process may still allocate: MemAvailable, less if a control group limits it.
inline std::int64_t available_memory() {
  std::int64_t result = -1;
  std::istringstream(value_in("/proc/meminfo", "MemAvailable")) >> result;
  if (result <= 0) return result;
  result *= 1024;
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream groups;
  groups << file.rdbuf();
  return std::min(result, memory_of_groups(groups.str(), "/sys/fs/cgroup").value_or(result));
}

/// Why a file of 64 KiB cannot be written and synchronized in `folder`; "" if it can.
inline std::string write_fault(const std::string& folder) {
  std::string path = folder + "/.lockstep-doctor-XXXXXX";
  lockstep::FileDescriptor file(::mkstemp(path.data()));
  if (!file.is_open()) return std::strerror(errno);
  const std::string bytes(std::size_t{64} << 10, 'x');
  const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
  std::string fault;
  if (written < 0 || ::fsync(file.number()) != 0)
    fault = std::strerror(errno);
  else if (written < static_cast<ssize_t>(bytes.size()))
    fault = std::strerror(ENOSPC);
  ::unlink(path.c_str());
  return fault;
}

inline void read_disk(HostFacts& facts, const HostOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  facts.folder = fs::absolute(options.save, error).lexically_normal().string();
  // The program may make the folder itself: its nearest ancestor counts.
  fs::path place = facts.folder;
  while (!fs::exists(place, error) && place.has_parent_path() && place != place.parent_path())
    place = place.parent_path();
  if (fs::is_regular_file(place, error)) place = place.parent_path();
  struct statvfs status{};
  if (::statvfs(place.c_str(), &status) == 0)
    facts.disk =
        static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
  else
    facts.disk_fault = std::strerror(errno);
  if (options.writes && facts.disk_fault.empty()) facts.disk_fault = write_fault(place.string());
}

/// Uses the folder for votes as an elastic job would do.
inline void try_votes(HostFacts& facts, const lockstep::Elastic& options) {
  if (!options) return;
  try {
    const lockstep::detail::MachineFolder folder(lockstep::detail::votes_directory(options));
  } catch (const std::exception& error) {
    facts.votes_fault = error.what();
  }
}

/// How a command ended.
enum class Ending { success, failure, not_found, late };

/// Output of a command, without a shell. It is killed after `timeout`. A process that waits for a
/// driver may not even end then, and is left behind.
inline Ending output_of(const std::vector<std::string>& command, std::chrono::milliseconds timeout,
                        std::string& output) {
  constexpr std::chrono::milliseconds time_to_die{500};
  constexpr int no_program = 127;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Ending::failure;
  lockstep::FileDescriptor from(ends[0]), to(ends[1]);
  std::vector<char*> arguments;
  for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return Ending::failure;
  if (child == 0) {
    ::dup2(to.number(), STDOUT_FILENO);
    ::dup2(to.number(), STDERR_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(no_program);
  }
  to.close();
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::array<char, 4096> bytes;
  for (bool is_open = true; is_open;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd waited{from.number(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waited, 1, static_cast<int>(left.count())) <= 0) break;
    const ssize_t n = ::read(from.number(), bytes.data(), bytes.size());
    is_open = n > 0 && output.size() < (std::size_t{1} << 20);
    if (n > 0) output.append(bytes.data(), static_cast<std::size_t>(n));
  }
  int status = 0;
  for (bool is_killed = false; ::waitpid(child, &status, WNOHANG) != child;) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= end && !std::exchange(is_killed, true)) ::kill(child, SIGKILL);
    if (now >= end + time_to_die) return Ending::late;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == no_program) return Ending::not_found;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && std::chrono::steady_clock::now() >= end)
    return Ending::late;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Ending::success : Ending::failure;
}

/// GPUs and driver from the output of nvidia-smi: lines "name, driver".
inline void read_gpus(HostFacts& facts, const std::string& output) {
  std::map<std::string, int> counts;
  for (const std::string_view line : lines_of(output)) {
    const std::size_t comma = line.rfind(", ");
    if (comma == std::string_view::npos) continue;
    ++counts[std::string(line.substr(0, comma))];
    facts.driver = line.substr(comma + 2);
  }
  for (const auto& [name, count] : counts)
    facts.gpus += fmt::format("{}{} x {}", facts.gpus.empty() ? "" : ", ", count, name);
}

inline void ask_gpus(HostFacts& facts, const HostOptions& options) {
  // Without the driver's device there is nothing to ask, and the program may not be installed.
  if (!std::filesystem::exists("/dev/nvidiactl")) return;
  std::string output;
  switch (output_of({"nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"},
                    options.gpu_timeout, output)) {
    case Ending::success:
      return read_gpus(facts, output);
    case Ending::not_found:
      facts.gpu_doubt = "nvidia-smi is not in PATH";
      return;
    case Ending::late:
      facts.gpu_doubt = fmt::format("nvidia-smi has not answered within {} s",
                                    options.gpu_timeout.count() / 1000);
      return;
    case Ending::failure:
      break;
  }
  facts.gpu_fault = output.empty() ? "it printed nothing" : std::string(lines_of(output)[0]);
}

/// The name of this host and what does not take time.
inline HostFacts read_name() {
  HostFacts facts;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) facts.host = name.data();
  facts.machine = first_line("/proc/sys/kernel/random/boot_id");
  facts.version = LOCKSTEP_VERSION;
  return facts;
}

/// All facts that need no other process.
inline HostFacts read_host(const HostOptions& options) {
  HostFacts facts = read_name();
  facts.cpu = value_in("/proc/cpuinfo", "model name");
  std::string flags = value_in("/proc/cpuinfo", "flags");
  if (flags.empty()) flags = value_in("/proc/cpuinfo", "Features");  // on ARM
  facts.features = known_features(flags);
  facts.cores = lockstep::detail::usable_cores();
  facts.machine_cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  facts.memory = available_memory();
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0)  // lockstep raises its own limit up to this one
    facts.files = static_cast<std::int64_t>(std::min<rlim_t>(files.rlim_max, 1'000'000'000));
  read_disk(facts, options);
  try_votes(facts, options.elastic);
  ask_gpus(facts, options);
  if (!options.data.empty()) {
    Fingerprint data = fingerprint(options.data, options.data_timeout);
    facts.data = std::move(data.text);
    facts.data_list = std::move(data.list);
    facts.data_fault = std::move(data.fault);
    facts.data_doubt = std::move(data.doubt);
  }
  if (!options.program.empty()) {
    Fingerprint program = fingerprint(options.program, options.data_timeout);
    facts.program = std::move(program.text);
    facts.program_fault = std::move(program.fault);
  }
  return facts;
}

}  // namespace lockstep_doctor
