/// \file
/// The folder of this user's elastic jobs on this machine, `lockstep-UID` in /dev/shm. Invariants:
/// it belongs to this user and nobody else may write to it; the machine's identity is in it, so
/// that votes and identity can only vanish together; folders of jobs whose processes are all gone
/// are removed when the next process starts.
///
///     lockstep-1000/machine            the identity; a shared lock of each process
///     lockstep-1000/RUN/lock           a shared lock of each member of the run on this machine
///     lockstep-1000/RUN/votes, guard   what this machine has voted; a lock while it is changed
#pragma once

#include <string>
#include <string_view>

#include "lockstep/cluster/description/elastic_options.hpp"
#include "lockstep/cluster/elastic/identity.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/process/file_descriptor.hpp"

namespace lockstep::detail {

/// Opens a file and gets its shared lock, the sign that this process uses the folder around it. The
/// kernel drops the lock with the process. `flags` may be O_CREAT. Not open if there is no such
/// file or folder.
/// \throws FileError, also if another process has the exclusive lock for two seconds.
LOCKSTEP_COLD_DECL FileDescriptor open_locked(const std::string& path, int flags);
/// True if `path` is still the file that is open.
LOCKSTEP_COLD_DECL bool is_same_file(const FileDescriptor& file, const std::string& path);
/// Exchanges the shared lock for an exclusive one. False if another process has one; the lock is
/// lost then.
LOCKSTEP_COLD_DECL bool lock_alone(const FileDescriptor& file);
/// Removes a folder and the files in it, whose lock this process has: the folder loses its name at
/// once. Errors are ignored.
LOCKSTEP_COLD_DECL void remove_folder(const std::string& path);
/// The whole of a file of at most 128 KiB; empty if there is none. \throws FileError if it cannot
/// be read.
LOCKSTEP_COLD_DECL std::string read_small_file(const std::string& path);
/// Creates a file that appears with its content; leaves one that exists. \throws FileError
LOCKSTEP_COLD_DECL void create_file(const std::string& path, std::string_view content);

/// The folder around that of this user.
LOCKSTEP_COLD_DECL std::string votes_directory(const Elastic& options);

/// This process' use of the folder.
class MachineFolder {
 public:
  /// `directory` is the folder around it, such as /dev/shm. \throws FileError if it cannot be used.
  LOCKSTEP_COLD_DECL explicit MachineFolder(const std::string& directory);
  MachineFolder(const MachineFolder&) = delete;
  MachineFolder& operator=(const MachineFolder&) = delete;
  /// Removes the folder if no other process uses it.
  LOCKSTEP_COLD_DECL ~MachineFolder();

  const std::string& path() const { return path_; }
  const MachineId& id() const { return id_; }
  /// False if the folder was removed or replaced.
  LOCKSTEP_COLD_DECL bool is_intact() const;

 private:
  /// Creates the folder and the identity unless they exist. False if they were removed meanwhile.
  LOCKSTEP_COLD_DECL bool open();
  /// Removes the folders of runs without a process.
  LOCKSTEP_COLD_DECL void sweep() const;

  std::string path_;
  FileDescriptor file_;
  MachineId id_{};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/machine_folder.ipp"
#endif
