#pragma once

#include "lockstep/core/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace lockstep::detail {

void reserve_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // Gets the lowest free number, unless another thread was faster. Child processes inherit it.
    const int file = ::open("/dev/null", O_RDWR);
    if (file > STDERR_FILENO) ::close(file);
  }
}

}  // namespace lockstep::detail
