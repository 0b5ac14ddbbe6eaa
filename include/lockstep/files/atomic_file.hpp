/// \file
/// A file that appears whole or not at all (POSIX). Invariants: until `commit` returns, the target
/// keeps its old content, or its absence; the temporary file lies in the target's folder, so that
/// the rename stays within one file system; it is removed on every path but a killed process; what
/// exists at the path and is no regular file, as a device or a FIFO, is refused and left as it is;
/// a file that is replaced hands on its permissions and, as far as the process may, its owner.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

struct stat;

namespace lockstep {

/// Writes a sibling temporary file, and renames it to `path` when everything is on the disk.
///
/// A symbolic link at `path` stays: the file that it points to is replaced.
/// \code
///   lockstep::AtomicFile file("weights.safetensors");
///   file.write(header);
///   file.write(body);
///   file.commit();                                 // without it the destructor drops the file
/// \endcode
class AtomicFile {
 public:
  /// Makes the temporary file. \throws FileError if the folder is missing or cannot be written, or
  /// if `path`, after following links, is something other than a regular file or nothing, or is a
  /// link to nothing.
  LOCKSTEP_DECL explicit AtomicFile(std::string path);
  LOCKSTEP_DECL ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. \throws FileError, after which the temporary file is gone.
  LOCKSTEP_DECL void write(std::span<const std::byte> bytes);
  LOCKSTEP_DECL void write(std::string_view text);

  /// Makes the file appear at its path. \throws FileError, after which the temporary file is gone.
  LOCKSTEP_DECL void commit();

 private:
  /// Owner first: a change of it clears bits of the mode. Only root may give a file away, and some
  /// file systems have no modes: then the file is the process' own.
  LOCKSTEP_DECL void inherit(const struct ::stat& old);
  LOCKSTEP_DECL void require_open() const;
  [[noreturn]] LOCKSTEP_DECL void fail(std::string_view fact, std::string_view remedy);
  LOCKSTEP_DECL void drop() noexcept;

  std::string path_, target_, folder_, temporary_;  // target_: path_ after following links
  int descriptor_ = -1;
};

/// Refuses a path that cannot be written, before any work is done for it; leaves nothing behind.
/// \throws FileError.
LOCKSTEP_DECL void check_writable(const std::string& path);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/atomic_file.ipp"
#endif
