#pragma once

#include "lockstep/cluster/elastic/machine_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// The names in a folder, without "." and "..".
inline std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
  if (!folder) return names;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

inline int lock_file(int file, int how) {
  int result = 0;
  do result = ::flock(file, how);
  while (result != 0 && errno == EINTR);
  return result;
}

FileDescriptor open_locked(const std::string& path, int flags) {
  constexpr int attempts = 1000;
  for (int i = 0; i < attempts; ++i) {
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
    if (!file.is_open() && errno == ENOENT) return file;
    if (!file.is_open()) throw FileError(path, "cannot be opened ({})", std::strerror(errno));
    if (lock_file(file.number(), LOCK_SH | LOCK_NB) == 0) {
      if (is_same_file(file, path)) return file;
    } else if (errno != EWOULDBLOCK) {
      throw FileError(path, "cannot be locked ({}); use a folder on a file system with locks",
                      std::strerror(errno));
    } else {  // a process that removes the folder has the lock for a moment
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  throw FileError(path,
                  "is locked by a process that removes the folder around it, and may be stopped; "
                  "continue it (SIGCONT) or kill it");
}

bool is_same_file(const FileDescriptor& file, const std::string& path) {
  struct stat open{}, named{};
  return ::fstat(file.number(), &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

bool lock_alone(const FileDescriptor& file) {
  return lock_file(file.number(), LOCK_EX | LOCK_NB) == 0;
}

/// Removes what remove_folder has left of a folder under its new name.
inline void remove_renamed(const std::string& path) {
  for (const std::string& name : names_in(path)) ::unlink((path + "/" + name).c_str());
  ::rmdir(path.c_str());
}

void remove_folder(const std::string& path) {
  std::random_device random;
  const std::string removed = format_text("{}.{:08x}{:08x}", path, random(), random());
  // At once: if this process is killed or stopped meanwhile, nobody may find a part of the folder.
  if (::rename(path.c_str(), removed.c_str()) != 0) return;
  remove_renamed(removed);
}

std::string read_small_file(const std::string& path) {
  constexpr std::size_t longest = 128 * 1024;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open() && errno == ENOENT) return {};
  std::string text(longest, '\0');
  std::size_t size = 0;
  while (file.is_open() && size < longest) {
    const auto got = ::read(file.number(), text.data() + size, longest - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw FileError(path, "cannot be read ({})", std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (!file.is_open()) throw FileError(path, "cannot be opened ({})", std::strerror(errno));
  text.resize(size);
  return text;
}

void create_file(const std::string& path, std::string_view content) {
  std::random_device random;
  const std::string draft = format_text("{}.{:08x}{:08x}", path, random(), random());
  FileDescriptor file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool written = file.is_open() && ::write(file.number(), content.data(), content.size()) ==
                                             static_cast<ssize_t>(content.size());
  const bool linked = written && ::fsync(file.number()) == 0 &&
                      (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  if (file.is_open()) ::unlink(draft.c_str());
  if (!linked && error != ENOENT)
    throw FileError(path, "cannot be created ({})", std::strerror(error));
}

std::string votes_directory(const Elastic& options) {
  if (!options.directory.empty()) return options.directory;
  return variable(process_environment(), "LOCKSTEP_ELASTIC_DIRECTORY").value_or("/dev/shm");
}

MachineFolder::MachineFolder(const std::string& directory)
    : path_(format_text("{}/lockstep-{}", directory, static_cast<std::uint64_t>(::geteuid()))) {
  while (!open()) {
  }
  const std::string text = read_small_file(path_ + "/machine");
  if (text.size() != id_.size())
    throw FileError(path_ + "/machine", "is damaged; remove the folder once no job uses it");
  std::memcpy(id_.data(), text.data(), id_.size());
  sweep();
}

bool MachineFolder::open() {
  constexpr const char* remedy =
      "; set LOCKSTEP_ELASTIC_DIRECTORY to a folder that all workers of this machine may write to";
  if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST)
    throw ClusterError("elastic: {} cannot be created ({}){}", path_, std::strerror(errno), remedy);
  struct stat status{};
  if (::lstat(path_.c_str(), &status) != 0) {
    if (errno == ENOENT) return false;
    throw ClusterError("elastic: {} cannot be read ({}){}", path_, std::strerror(errno), remedy);
  }
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    throw ClusterError("elastic: {} is not a folder that only this user can access{}", path_,
                       remedy);
  std::random_device random;
  std::string id;
  while (id.size() < id_.size()) id += static_cast<char>(random());
  if (::access((path_ + "/machine").c_str(), F_OK) != 0) create_file(path_ + "/machine", id);
  file_ = open_locked(path_ + "/machine", 0);
  return file_.is_open();
}

MachineFolder::~MachineFolder() {
  if (!is_intact() || !lock_alone(file_)) return;
  sweep();
  remove_folder(path_);
}

bool MachineFolder::is_intact() const { return is_same_file(file_, path_ + "/machine"); }

void MachineFolder::sweep() const {
  for (const std::string& name : names_in(path_)) {
    const std::string run = path_ + "/" + name;
    struct stat status{};
    if (::lstat(run.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) continue;
    if (name.find('.') != std::string::npos) {  // a process was killed while it removed the folder
      remove_renamed(run);
      continue;
    }
    const FileDescriptor lock(::open((run + "/lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!lock.is_open())
      ::rmdir(run.c_str());  // empty: its process was killed, or creates it again
    else if (lock_alone(lock) && is_same_file(lock, run + "/lock"))
      remove_folder(run);
  }
}

}  // namespace lockstep::detail
