/// \file
/// Bytes of a file, plain or gzip. Invariants: which of the two is told by the first bytes, not by
/// the name; no more memory is taken than the file can fill; gzip members that follow each other
/// are one content, and zero bytes after them are padding, as for gzip itself. Source: RFC 1952 for
/// gzip.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

struct z_stream_s;  // zlib's

namespace lockstep::detail {

/// Bytes of a file, plain or inflated, from its beginning.
class ByteReader {
 public:
  /// \throws FileError if the path cannot be read as a file.
  LOCKSTEP_COLD_DECL explicit ByteReader(std::string path);
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  /// Most bytes that the file can hold; deflate packs at most 1032 into one (zlib's manual).
  LOCKSTEP_DECL std::uint64_t most() const;

  /// Reads up to `count` bytes; fewer only at the end of the content.
  LOCKSTEP_DECL std::size_t read(std::uint8_t* out, std::size_t count);

  /// \throws DataError unless content and file end here.
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

  /// Whether another gzip member follows, after zero bytes or none; then inflate begins again.
  LOCKSTEP_COLD_DECL bool begin_member();

  /// 0 only after the end of the last gzip member. zlib compares each one's checksum and length.
  LOCKSTEP_DECL std::size_t inflate_some(std::uint8_t* out, std::size_t count);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t size_ = 0;
  std::array<std::uint8_t, 65536> buffer_{};
  std::size_t next_ = 0, available_ = 0;
  bool ended_ = false;
  std::unique_ptr<z_stream_s, EndInflate> stream_;  // none: the file is not gzip
};

/// All bytes of a file, inflated if it is gzip.
/// \throws FileError if it cannot be read; DataError if it is empty or its gzip data are damaged.
LOCKSTEP_COLD_DECL std::vector<std::uint8_t> read_whole(const std::string& path);

/// A name from a file as it may stand in a message: printable ASCII, not too long.
LOCKSTEP_COLD_DECL std::string shown_name(std::string_view name);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/byte_reader.ipp"
#endif
