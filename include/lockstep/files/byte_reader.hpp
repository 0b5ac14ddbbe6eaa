/// \file
/// Reads plain and gzip files. Invariants: the first bytes decide which of the two it is, not the
/// name; memory is bounded by what the file can expand to; consecutive gzip members form one
/// content, and zero bytes after them are padding, as for gzip. Source: RFC 1952 (gzip).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/quote.hpp"

struct z_stream_s;  // zlib's

namespace lockstep::detail {

/// Sequential reader of a file's content, inflated if the file is gzip.
/// \code
///   file_ --fread--> buffer_ [next_, next_ + available_) --+--copy_some (plain)-----> out
///                                                          +--inflate_some (gzip)---> out
/// \endcode
class ByteReader {
 public:
  /// \throws FileError if the path cannot be read as a file.
  LOCKSTEP_COLD_DECL explicit ByteReader(std::string path);
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  /// Upper bound of the content's size in bytes. Deflate expands by at most a factor of 1032
  /// (zlib's manual).
  LOCKSTEP_DECL std::uint64_t most() const;

  /// Reads up to `count` bytes; returns fewer only at the end of the content.
  LOCKSTEP_DECL std::size_t read(std::uint8_t* out, std::size_t count);

  /// Checks that content and file end here. \throws DataError otherwise.
  LOCKSTEP_COLD_DECL void expect_end();

  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct EndInflate {
    LOCKSTEP_COLD_DECL void operator()(z_stream_s* stream) const;
  };

  LOCKSTEP_COLD_DECL void refill();

  LOCKSTEP_DECL std::size_t copy_some(std::uint8_t* out, std::size_t count);

  /// Skips padding. If another gzip member follows, resets inflate for it and returns true.
  LOCKSTEP_COLD_DECL bool begin_member();

  /// Inflates at least one byte, or returns 0 after the end of the last gzip member. zlib checks
  /// the checksum and the length of each member.
  LOCKSTEP_DECL std::size_t inflate_some(std::uint8_t* out, std::size_t count);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t size_ = 0;
  std::array<std::uint8_t, 65536> buffer_{};
  std::size_t next_ = 0, available_ = 0;
  bool ended_ = false;
  std::unique_ptr<z_stream_s, EndInflate> stream_;  // null if the file is not gzip
};

/// All bytes of a file, inflated if it is gzip.
/// \throws FileError if it cannot be read; DataError if it is empty or its gzip data is damaged.
LOCKSTEP_COLD_DECL std::vector<std::uint8_t> read_whole(const std::string& path);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/byte_reader.ipp"
#endif
