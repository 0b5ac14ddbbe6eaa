/// \file
/// Sockets of the simulated kernel, as the C library offers them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace sockets {

constexpr std::uint16_t port = 9000;

inline sockaddr_in address_of(std::size_t rank, std::uint16_t at = port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x0a000001u + static_cast<std::uint32_t>(rank));
  address.sin_port = htons(at);
  return address;
}

/// A descriptor that is closed at the end of its scope.
struct Socket {
  explicit Socket(int number) : fd(number) {
    if (fd < 0) throw std::runtime_error("no socket: " + std::to_string(errno));
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { ::close(fd); }
  void set(int level, int name, int value) const {
    if (::setsockopt(fd, level, name, &value, sizeof value) != 0)
      throw std::runtime_error("setsockopt failed");
  }
  const int fd;
};

inline Socket listener(std::size_t rank) {
  Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = address_of(rank);
  if (::bind(socket.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.fd, 16) != 0)
    throw std::runtime_error("cannot listen");
  return Socket(::dup(socket.fd));
}

inline Socket accepted(const Socket& from) { return Socket(::accept(from.fd, nullptr, nullptr)); }

/// \return 0 or an error number.
inline int connect_to(const Socket& socket, std::size_t rank) {
  const sockaddr_in address = address_of(rank);
  return ::connect(socket.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0
             ? 0
             : errno;
}

inline tcp_info info_of(const Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    throw std::runtime_error("no tcp_info");
  return info;
}

}  // namespace sockets
