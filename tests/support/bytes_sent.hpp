/// \file
/// The bytes of a process' connections, as the kernel counts them.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace testing {

/// Bytes that this process has sent over its TCP connections; 0 if the kernel does not count them.
inline double bytes_sent() {
  constexpr std::size_t at =
      200;  // of tcpi_bytes_sent, which the C library's tcp_info does not have
  std::uint64_t all = 0;
  for (int file = 3; file < 256; ++file) {
    unsigned char info[at + sizeof all] = {};
    socklen_t size = sizeof info;
    std::uint64_t sent = 0;
    if (::getsockopt(file, IPPROTO_TCP, TCP_INFO, info, &size) != 0 || size < sizeof info) continue;
    std::memcpy(&sent, info + at, sizeof sent);
    all += sent;
  }
  return static_cast<double>(all);
}

}  // namespace testing
