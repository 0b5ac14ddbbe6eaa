/// \file
/// Sequential reading of a regular file. Invariant: memory is allocated only for bytes that the file
/// had when it was opened.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// A regular file opened for sequential reading.
/// \code
///   InputFile file("weights.safetensors");
///   const std::vector<std::byte> all = file.next(file.size());
/// \endcode
class InputFile {
 public:
  /// \throws FileError if `path` cannot be opened, or is not a regular file.
  [[gnu::cold]] explicit InputFile(std::string path)
      : path_(std::move(path)),
        // O_NONBLOCK: opening a FIFO would block until it has a writer; no effect on regular
        // files.
        descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail("check the path and its permissions");
    struct ::stat facts{};
    if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
      ::close(descriptor_);
      throw FileError(path_, "it is not a regular file; give the path of a regular file");
    }
    size_ = static_cast<std::uint64_t>(facts.st_size);
  }
  [[gnu::cold]] ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// Reads the next `count` bytes. \throws FileError if the file is shorter or cannot be read.
  [[gnu::cold]] std::vector<std::byte> next(std::size_t count) {
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

 private:
  [[noreturn, gnu::cold]] void fail(std::string_view remedy) const {
    throw FileError(path_, "cannot be read ({}); {}", std::generic_category().message(errno),
                    remedy);
  }

  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep::detail
