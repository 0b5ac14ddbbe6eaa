/// \file
/// Sequential reading of a regular file. Invariant: memory is allocated only for bytes that the file
/// had when it was opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// A regular file opened for sequential reading.
/// \code
///   InputFile file("weights.safetensors");
///   const std::vector<std::byte> all = file.next(file.size());
/// \endcode
class InputFile {
 public:
  /// \throws FileError if `path` cannot be opened, or is not a regular file.
  LOCKSTEP_COLD_DECL explicit InputFile(std::string path);
  LOCKSTEP_COLD_DECL ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// Reads the next `count` bytes. \throws FileError if the file is shorter or cannot be read.
  LOCKSTEP_COLD_DECL std::vector<std::byte> next(std::size_t count);

 private:
  [[noreturn]] LOCKSTEP_COLD_DECL void fail(std::string_view remedy) const;

  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/input_file.ipp"
#endif
