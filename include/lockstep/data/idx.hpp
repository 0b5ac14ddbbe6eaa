/// \file
/// IDX, the file format of MNIST: 00 00, a type, a rank, big-endian 32-bit extents, then the
/// elements. Invariants: a file is read whole or refused with a sentence; plain or gzip is told by
/// its first bytes; no more memory is taken than the file can fill.
/// Source: http://yann.lecun.com/exdb/mnist/ ("The IDX file format"); RFC 1952 for gzip.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep {

/// An IDX file of unsigned bytes.
struct IdxBytes {
  std::vector<std::size_t> extents;  ///< first axis: examples
  std::vector<std::uint8_t> bytes;   ///< row after row
  std::string path;                  ///< the file that was read, with `.gz` if it has it
};

namespace detail {

/// Bytes of a file, plain or inflated, from its beginning.
class ByteReader {
 public:
  /// \throws FileError if the path cannot be read as a file.
  [[gnu::cold]] explicit ByteReader(const std::filesystem::path& path) : path_(path.string()) {
    std::error_code code;
    const auto status = std::filesystem::status(path, code);
    if (status.type() == std::filesystem::file_type::not_found)
      throw FileError(path_, "there is no such file; check the path");
    if (status.type() == std::filesystem::file_type::none)
      throw FileError(path_, {"cannot be read (", code.message(), "); check the path"});
    if (status.type() == std::filesystem::file_type::directory)
      throw FileError(path_, "is a folder, not a file; check the path");
    if (status.type() != std::filesystem::file_type::regular)
      throw FileError(path_, "is not a regular file; copy the data to one");
    file_.reset(std::fopen(path_.c_str(), "rb"));
    if (!file_)
      throw FileError(path_, {"cannot be opened (", std::generic_category().message(errno),
                              "); check its permissions"});
    size_ = std::filesystem::file_size(path, code);
    if (code)
      throw FileError(path_, {"its size cannot be read (", code.message(), "); copy the file"});
    refill();
    if (available_ == 0) throw DataError(path_, "is empty; fetch it again");
    if (available_ >= 2 && buffer_[0] == 0x1f && buffer_[1] == 0x8b) {
      if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
      gzip_ = true;
    }
  }
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;
  ~ByteReader() {
    if (gzip_) inflateEnd(&stream_);
  }

  /// Most bytes that the file can hold; deflate packs at most 1032 into one (zlib's manual).
  std::uint64_t most() const { return gzip_ ? size_ * 1032 : size_; }

  /// Reads up to `count` bytes; fewer only at the end of the content.
  std::size_t read(std::uint8_t* out, std::size_t count) {
    std::size_t done = 0;
    while (done < count) {
      const std::size_t step =
          gzip_ ? inflate_some(out + done, count - done) : copy_some(out + done, count - done);
      if (step == 0) break;
      done += step;
    }
    return done;
  }

  /// \throws DataError unless content and file end here.
  [[gnu::cold]] void expect_end() {
    std::uint8_t extra = 0;
    if (read(&extra, 1) != 0)
      throw DataError(path_, "has bytes after the data that its header announces; fetch it again");
    if (available_ == 0) refill();
    if (available_ != 0)
      throw DataError(path_, "has bytes after the end of the gzip data; fetch it again");
  }

  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  [[gnu::cold]] void refill() {
    next_ = 0;
    available_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
    if (available_ == 0 && std::ferror(file_.get()))
      throw FileError(
          path_, {"cannot be read (", std::generic_category().message(errno), "); check the disk"});
  }

  std::size_t copy_some(std::uint8_t* out, std::size_t count) {
    if (available_ == 0) refill();
    const std::size_t step = std::min(count, available_);
    std::copy_n(buffer_.data() + next_, step, out);
    next_ += step;
    available_ -= step;
    return step;
  }

  /// 0 only after the end of the gzip member, whose checksum and length zlib has then compared.
  std::size_t inflate_some(std::uint8_t* out, std::size_t count) {
    const std::size_t room = std::min<std::size_t>(count, std::numeric_limits<unsigned>::max() / 2);
    stream_.next_out = out;
    stream_.avail_out = static_cast<unsigned>(room);
    while (!member_ended_ && stream_.avail_out == room) {
      if (available_ == 0) refill();
      if (available_ == 0) throw DataError(path_, "its gzip data are truncated; fetch it again");
      stream_.next_in = buffer_.data() + next_;
      stream_.avail_in = static_cast<unsigned>(available_);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      next_ += available_ - stream_.avail_in;
      available_ = stream_.avail_in;
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        throw DataError(path_,
                        {"its gzip data are damaged (",
                         stream_.msg ? stream_.msg : "zlib gives no reason", "); fetch it again"});
      member_ended_ = result == Z_STREAM_END;
    }
    return room - stream_.avail_out;
  }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t size_ = 0;
  std::array<std::uint8_t, 65536> buffer_{};
  std::size_t next_ = 0, available_ = 0;
  bool gzip_ = false, member_ended_ = false;
  z_stream stream_{};
};

inline void read_header(ByteReader& file, std::uint8_t* out, std::size_t count) {
  if (file.read(out, count) != count)
    throw DataError(file.path(), "is truncated in its IDX header; fetch it again");
}

}  // namespace detail

/// Reads an IDX file of unsigned bytes with `rank` axes, plain or gzip.
///
/// `path` is the name without `.gz`; if there is no such file, `path` + ".gz" is read. The plain
/// one wins when both are there.
/// \throws FileError if neither can be read; DataError if the content is not such an IDX file:
/// empty, truncated, damaged, of another type or rank, too large, or followed by further bytes.
/// \code
///   auto images = lockstep::read_idx("data/mnist/train-images-idx3-ubyte", 3);
/// \endcode
[[gnu::cold]] inline IdxBytes read_idx(const std::filesystem::path& path, int rank) {
  std::filesystem::path packed = path;
  packed += ".gz";
  std::error_code ignored;
  const bool plain_missing = !std::filesystem::exists(path, ignored);
  if (plain_missing && !std::filesystem::exists(packed, ignored))
    throw FileError(path.string(),
                    "cannot be found, nor with .gz after its name; put the file there or name "
                    "another folder");
  detail::ByteReader file(plain_missing ? packed : path);

  std::array<std::uint8_t, 4> magic{};
  detail::read_header(file, magic.data(), magic.size());
  const std::array<std::uint8_t, 4> expected{0, 0, 0x08, static_cast<std::uint8_t>(rank)};
  if (magic != expected) {
    const auto listed = [](const std::array<std::uint8_t, 4>& bytes) {
      return text({bytes[0], " ", bytes[1], " ", bytes[2], " ", bytes[3]});
    };
    throw DataError(file.path(),
                    {"begins with the bytes ", listed(magic), ", where an IDX file of ", rank,
                     "-axis unsigned bytes begins with ", listed(expected),
                     "; check that it is the right file"});
  }
  IdxBytes result;
  result.path = file.path();
  std::uint64_t elements = 1;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<std::uint8_t, 4> b{};
    detail::read_header(file, b.data(), b.size());
    const std::uint64_t extent = (std::uint64_t{b[0]} << 24) | (std::uint64_t{b[1]} << 16) |
                                 (std::uint64_t{b[2]} << 8) | std::uint64_t{b[3]};
    result.extents.push_back(static_cast<std::size_t>(extent));
    // Zero elements, or at most most(), which is far below 2^64 / extent.
    if (extent != 0 && elements > file.most() / extent)
      throw DataError(file.path(),
                      "is truncated: its header announces more elements than it can hold; fetch it "
                      "again");
    elements *= extent;
  }
  result.bytes.resize(static_cast<std::size_t>(elements));
  const std::size_t got = file.read(result.bytes.data(), result.bytes.size());
  if (got != result.bytes.size())
    throw DataError(file.path(),
                    {"is truncated: ", got, " of ", elements, " elements; fetch it again"});
  file.expect_end();
  return result;
}

}  // namespace lockstep
