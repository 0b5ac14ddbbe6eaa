/// \file
/// Checkpoints on disk (POSIX). Invariants: an entry appears complete or not at all, even if the
/// process is killed or the power fails; an entry with a missing, truncated or changed file is
/// refused by the name of the file; one process at a time writes to a directory.
///
///     run1/
///       step-000000500/           an entry: "step-" and the number of steps
///       step-000001000/
///         weights.safetensors     its files
///         optimizer.safetensors
///         manifest.json           written last: names, sizes and CRC32C of the files, and its own
///       latest                    the name of the newest entry, for people and scripts
///       lock                      locked by the process that writes
///       step-000001500.tmp/       an entry that is being written, or was when the process ended
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::detail {

/// A file of an entry that is being written: the spans are written one after the other.
struct CheckpointFile {
  std::string name;
  std::vector<std::span<const std::byte>> bytes;
  /// If set, \returns the content of a part of a span, which is only a place in memory.
  FunctionRef<std::span<const std::byte>(std::span<const std::byte>)> fetch = {};
};

/// An entry that was read completely and whose checksums match.
struct CheckpointEntry {
  std::string path;
  std::string manifest;                                 ///< JSON
  std::map<std::string, std::vector<std::byte>> files;  /// by name, without the manifest
};

/// Another process has the lock of the directory.
class DirectoryInUse : public FileError {
 public:
  using FileError::FileError;
};

/// A directory of checkpoints.
///
/// An entry is written in this order; a process that is killed between any two of the operations
/// leaves the older entries as they were, and the new one either complete or under its temporary
/// name:
/// \code
///   mkdir step-N.tmp -> each file: write, fsync, close -> manifest.json: write, fsync, close
///   -> fsync step-N.tmp -> rename to step-N -> fsync the directory -> latest
/// \endcode
class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(std::string path) : path_(std::move(path)) {}
  CheckpointDirectory(const CheckpointDirectory&) = delete;
  CheckpointDirectory& operator=(const CheckpointDirectory&) = delete;
  LOCKSTEP_COLD_DECL ~CheckpointDirectory();

  const std::string& path() const { return path_; }
  /// Whether `open_for_writing` has succeeded.
  bool is_open() const { return lock_ >= 0; }
  LOCKSTEP_COLD_DECL std::string path_of(std::uint64_t step) const;

  /// Creates the directory if only its last component is missing, locks it, checks that it can be
  /// written to, and removes the temporaries of killed processes. Call before `write` and `remove`.
  /// \throws FileError; if another process holds the lock, naming that process.
  LOCKSTEP_COLD_DECL void open_for_writing();

  /// The steps of all entries, in ascending order; empty if there is no directory.
  /// \throws FileError if the path is not a directory, or cannot be read.
  LOCKSTEP_COLD_DECL std::vector<std::uint64_t> steps() const;

  /// Writes an entry. `description` is a JSON object without its closing brace, to which the list of
  /// files is added. Replaces an entry of the same step. \throws FileError naming the file, the
  /// operation, and, if the disk is full, the bytes needed and free.
  LOCKSTEP_COLD_DECL void write(std::uint64_t step, const std::vector<CheckpointFile>& files,
                                std::string description);
  /// Writes the name of an entry into the file `name`, for people and scripts: "latest", which
  /// `write` writes, or "best". An error is ignored.
  LOCKSTEP_COLD_DECL void note(std::string_view name, std::uint64_t step);

  /// Called with an entry that has its manifest only, and the name and size of a file. Throws if this
  /// is more than the reader expects.
  using SizeCheck =
      FunctionRef<void(const CheckpointEntry& entry, std::string_view file, std::uint64_t size)>;
  /// Called with the beginning of a file; \returns how many of its bytes an entry is to have.
  using Kept = FunctionRef<std::uint64_t(std::string_view file, std::span<const std::byte> begin)>;
  /// Reads an entry and checks the sizes and checksums of all of its files. `check` is called for all
  /// of them before memory is allocated for the first. Without `kept` the entry has all bytes.
  /// \throws CheckpointError naming the damaged file; FileError if one cannot be read.
  LOCKSTEP_COLD_DECL CheckpointEntry read(std::uint64_t step, const SizeCheck& check = {},
                                          const Kept& kept = {}) const;

  /// Removes an entry, after renaming it to a temporary name. \throws FileError.
  LOCKSTEP_COLD_DECL void remove(std::uint64_t step);
  /// Removes all entries. \throws FileError.
  LOCKSTEP_COLD_DECL void remove_all();

  static constexpr std::string_view manifest_name = "manifest.json";

 private:
  std::string path_;
  int lock_ = -1;
};

/// For tests: called before each operation on the disk with its name, such as "fsync
/// weights.safetensors"; may end the process. A result other than 0 is the errno with which the
/// operation fails instead. Null by default.
using CheckpointFault = int (*)(std::string_view operation);
LOCKSTEP_COLD_DECL CheckpointFault& checkpoint_fault();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/checkpoint_directory.ipp"
#endif
