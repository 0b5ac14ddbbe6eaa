/// \file
/// Standard streams that were closed when the program started.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace lockstep::detail {

/// Opens /dev/null for each closed standard stream. Otherwise the next file or socket gets its
/// number, and whatever the program prints is written there. Call before opening a file to write or
/// a connection.
[[gnu::cold]] inline void reserve_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // Gets the lowest free number, unless another thread was faster. Child processes inherit it.
    const int file = ::open("/dev/null", O_RDWR);
    if (file > STDERR_FILENO) ::close(file);
  }
}

}  // namespace lockstep::detail
