#pragma once

#include "lockstep/files/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

InputFile::InputFile(std::string path)
    : path_(std::move(path)),
      // O_NONBLOCK: opening a FIFO would block until it has a writer; no effect on regular files.
      descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail("check the path and its permissions");
  struct ::stat facts{};
  if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    ::close(descriptor_);
    throw FileError(path_, "it is not a regular file; give the path of a regular file");
  }
  size_ = static_cast<std::uint64_t>(facts.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

std::vector<std::byte> InputFile::next(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t done = 0; done < count;) {
    // Linux transfers at most 2 GiB per call.
    const ssize_t n =
        ::read(descriptor_, bytes.data() + done, std::min(count - done, std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("check the disk");
    if (n == 0) throw FileError(path_, "it was truncated while it was being read; read it again");
    done += static_cast<std::size_t>(n);
  }
  return bytes;
}

void InputFile::fail(std::string_view remedy) const {
  throw FileError(path_, "cannot be read ({}); {}", std::generic_category().message(errno), remedy);
}

}  // namespace lockstep::detail
