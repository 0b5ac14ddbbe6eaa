/// \file
/// A file that appears completely or not at all (POSIX). Invariants: until `commit` returns, the
/// path keeps its old content, or remains absent; the temporary file is in the same folder, so that
/// the rename stays within one file system; it is removed on every path except when the process is
/// killed; an existing path that is not a regular file, such as a device or a FIFO, is rejected and
/// left as it is; a replaced file passes on its permissions and, as far as the process may set it,
/// its owner.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

struct stat;

namespace lockstep {

/// Writes to a temporary file in the same folder and renames it to `path` once all data is on disk.
/// \code
///   open ---write*---> written ---commit---> committed     path: the new content
///     |                   |
///     +---error, ~AtomicFile---> dropped                   path: unchanged
/// \endcode
/// A symbolic link at `path` stays: the file that it points to is replaced.
/// \code
///   lockstep::AtomicFile file("weights.safetensors");
///   file.write(header);
///   file.write(body);
///   file.commit();                                 // without it the destructor drops the file
/// \endcode
class AtomicFile {
 public:
  /// Creates the temporary file. \throws FileError if the folder does not exist or cannot be
  /// written to, if `path`, after following links, exists and is not a regular file, if it is a
  /// dangling link, or if it stands for an open file, as /dev/stdout does.
  LOCKSTEP_DECL explicit AtomicFile(std::string path);
  LOCKSTEP_DECL ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. \throws FileError, after removing the temporary file.
  LOCKSTEP_DECL void write(std::span<const std::byte> bytes);
  LOCKSTEP_DECL void write(std::string_view text);

  /// Syncs the data to disk; `commit`, which does so otherwise, then only renames the file.
  /// \throws FileError, after removing the temporary file.
  LOCKSTEP_DECL void sync();
  /// Syncs the data to disk, renames the file to `path` and syncs the folder. \throws FileError,
  /// after removing the temporary file.
  LOCKSTEP_DECL void commit();

 private:
  /// Copies owner and mode of the file to be replaced. The owner comes first, since changing it
  /// clears bits of the mode. Errors are ignored: only root may change the owner, and some file
  /// systems have no modes.
  LOCKSTEP_DECL void inherit(const struct ::stat& old);
  LOCKSTEP_DECL void require_open() const;
  [[noreturn]] LOCKSTEP_DECL void fail(std::string_view fact, std::string_view remedy);
  LOCKSTEP_DECL void drop() noexcept;

  std::string path_, target_, folder_, temporary_;  // target_: path_ after following links
  int descriptor_ = -1;
};

/// Checks that `path` can be written, before a long computation of its content; leaves no file.
/// \throws FileError.
LOCKSTEP_DECL void check_writable(const std::string& path);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/atomic_file.ipp"
#endif
