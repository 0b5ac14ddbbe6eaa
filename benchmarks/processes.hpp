/// \file
/// The shared part of benchmarks with several processes on this machine: starting them, shared
/// memory and barriers, a folder for their addresses.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/collectives/shared_memory/shared_memory.hpp>
#include <lockstep/collectives/shared_memory/shared_memory_group.hpp>
#include <lockstep/files/atomic_file.hpp>

namespace measure {

[[noreturn]] inline void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

/// A T in memory shared with processes forked later.
template <class T>
class Shared {
 public:
  template <class... Arguments>
  explicit Shared(Arguments&&... arguments) {
    void* const memory =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("cannot map shared memory");
    value_ = new (memory) T(std::forward<Arguments>(arguments)...);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { munmap(value_, sizeof(T)); }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

/// A barrier of processes, in shared memory. Waiting processes sleep, so that the first to arrive
/// takes no core from the threads of the others.
class SleepingLine {
 public:
  explicit SleepingLine(std::size_t processes) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&line_, &shared, static_cast<unsigned>(processes));
  }
  void wait() { pthread_barrier_wait(&line_); }

 private:
  pthread_barrier_t line_;
};

/// A temporary folder, removed with its contents by the destructor.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_((std::filesystem::temp_directory_path() / (name + "_XXXXXX")).string()) {
    if (!mkdtemp(path_.data())) fail(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A key-value store in a folder: each key is a file.
class FolderStore {
 public:
  explicit FolderStore(const std::string& folder) : folder_(folder) {}
  void set(const std::string& key, const std::string& bytes) {
    lockstep::AtomicFile file((folder_ / key).string());
    file.write(bytes);
    file.commit();
  }
  /// Waits until a process has set the key. \returns nullopt if none has by the deadline.
  std::optional<std::string> get(const std::string& key,
                                 std::chrono::steady_clock::time_point deadline) {
    while (!std::filesystem::exists(folder_ / key)) {
      if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(folder_ / key, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  std::filesystem::path folder_;
};

/// The memory of a group of `size` processes, whose creator is rank 0.
inline std::shared_ptr<lockstep::SharedMemory> open_memory(FolderStore& store, std::size_t rank,
                                                           std::size_t size,
                                                           const std::string& name = "memory") {
  const lockstep::SharedMemory::Options options{
      .bytes = lockstep::SharedMemoryGroup::bytes(size, 1),
      .heap = lockstep::SharedMemoryGroup::heap_bytes(size, 1)};
  if (rank > 0)
    return lockstep::SharedMemory::open(
        store.get(name, std::chrono::steady_clock::now() + std::chrono::seconds(10)).value(),
        options);
  auto memory = lockstep::SharedMemory::create(options);
  store.set(name, memory->place());
  return memory;
}

/// Runs body(rank) in each of `count` new processes, which end with this one, and after `seconds`
/// at the latest. \returns whether body returned true in all; if one fails, the others are killed.
template <class Body>
bool in_processes(std::size_t count, const Body& body, unsigned seconds = 300) {
  std::fflush(stdout);
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const pid_t child = fork();
    if (child < 0) fail("cannot start a process");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      alarm(seconds);
      int code = 1;
      try {
        code = body(rank) ? 0 : 1;
      } catch (const std::exception& e) {
        std::fputs(fmt::format("process {}: {}\n", rank, e.what()).c_str(), stderr);
      }
      std::fflush(stdout);
      _exit(code);
    }
    children.push_back(child);
  }
  bool is_right = true;
  while (!children.empty()) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    if (child < 0 && errno != EINTR) fail("waitpid");
    if (std::erase(children, child) == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
      continue;
    is_right = false;
    for (const pid_t other : children) kill(other, SIGKILL);
  }
  return is_right;
}

}  // namespace measure
