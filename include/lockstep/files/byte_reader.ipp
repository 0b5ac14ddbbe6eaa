#pragma once

#include "lockstep/files/byte_reader.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <system_error>

#include "lockstep/files/file_status.hpp"

namespace lockstep::detail {

ByteReader::ByteReader(std::string path) : path_(std::move(path)) {
  const FileStatus found = file_status(path_);
  if (found.kind == FileKind::missing)
    throw FileError(path_, "there is no such file; check the path");
  if (found.kind == FileKind::unknown)
    throw FileError(path_, "cannot be read ({}); check the path",
                    std::generic_category().message(found.error));
  if (found.kind == FileKind::folder)
    throw FileError(path_, "is a folder, not a file; check the path");
  if (found.kind != FileKind::regular)
    throw FileError(path_, "is not a regular file; copy the data to one");
  file_.reset(std::fopen(path_.c_str(), "rb"));
  if (!file_)
    throw FileError(path_, "cannot be opened ({}); check its permissions",
                    std::generic_category().message(errno));
  size_ = found.size;
  refill();
  if (available_ == 0) throw DataError(path_, "is empty; fetch it again");
  if (available_ >= 2 && buffer_[0] == 0x1f && buffer_[1] == 0x8b) {
    auto stream = std::make_unique<z_stream>();
    if (inflateInit2(stream.get(), 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
    stream_.reset(stream.release());
  }
}

void ByteReader::EndInflate::operator()(z_stream_s* stream) const {
  inflateEnd(stream);
  delete stream;
}

std::uint64_t ByteReader::most() const { return stream_ ? size_ * 1032 : size_; }

std::size_t ByteReader::read(std::uint8_t* out, std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    const std::size_t step =
        stream_ ? inflate_some(out + done, count - done) : copy_some(out + done, count - done);
    if (step == 0) break;
    done += step;
  }
  return done;
}

void ByteReader::expect_end() {
  std::uint8_t extra = 0;
  if (read(&extra, 1) != 0)
    throw DataError(path_, "has bytes after the data that its header announces; fetch it again");
  if (available_ == 0) refill();
  if (available_ != 0)
    throw DataError(path_, "has bytes after the end of the gzip data; fetch it again");
}

void ByteReader::refill() {
  next_ = 0;
  available_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
  if (available_ == 0 && std::ferror(file_.get()))
    throw FileError(path_, "cannot be read ({}); check the disk",
                    std::generic_category().message(errno));
}

std::size_t ByteReader::copy_some(std::uint8_t* out, std::size_t count) {
  if (available_ == 0) refill();
  const std::size_t step = std::min(count, available_);
  std::copy_n(buffer_.data() + next_, step, out);
  next_ += step;
  available_ -= step;
  return step;
}

bool ByteReader::begin_member() {
  for (;; ++next_, --available_) {
    if (available_ == 0) refill();
    if (available_ == 0 || buffer_[next_] != 0) break;
  }
  if (available_ == 0 || buffer_[next_] != 0x1f) return false;
  if (inflateReset(stream_.get()) != Z_OK) throw std::bad_alloc();
  return true;
}

std::size_t ByteReader::inflate_some(std::uint8_t* out, std::size_t count) {
  const std::size_t room = std::min<std::size_t>(count, std::numeric_limits<unsigned>::max() / 2);
  stream_->next_out = out;
  stream_->avail_out = static_cast<unsigned>(room);
  while (!ended_ && stream_->avail_out == room) {
    if (available_ == 0) refill();
    if (available_ == 0) throw DataError(path_, "its gzip data are truncated; fetch it again");
    stream_->next_in = buffer_.data() + next_;
    stream_->avail_in = static_cast<unsigned>(available_);
    const int result = inflate(stream_.get(), Z_NO_FLUSH);
    next_ += available_ - stream_->avail_in;
    available_ = stream_->avail_in;
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      throw DataError(path_, "its gzip data are damaged ({}); fetch it again",
                      stream_->msg ? stream_->msg : "zlib gives no reason");
    if (result == Z_STREAM_END) ended_ = !begin_member();
  }
  return room - stream_->avail_out;
}

std::vector<std::uint8_t> read_whole(const std::string& path) {
  ByteReader file(path);
  std::vector<std::uint8_t> bytes;
  for (std::size_t step = 65536;; step = bytes.size()) {
    const std::size_t before = bytes.size();
    bytes.resize(before + step);
    const std::size_t got = file.read(bytes.data() + before, step);
    bytes.resize(before + got);
    if (got < step) break;
  }
  file.expect_end();
  return bytes;
}

}  // namespace lockstep::detail
