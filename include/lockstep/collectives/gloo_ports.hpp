/// \file
/// Makes Gloo listen on ports of a given range. Invariant: each connection of a process listens for
/// its peer on a port of the range and on no other.
#pragma once

#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep::detail {

/// An inclusive range of ports.
struct GlooPorts {
  std::uint16_t first = 0, last = 0;  ///< 0: the operating system chooses

  bool given() const { return first != 0; }
  std::size_t size() const { return std::size_t{last} - first + 1; }
};

/// A Gloo device whose next connection listens on a given port. Gloo (2022-05) has no setting for
/// this: its connections listen on the address of the device, whose port is 0.
class GlooPortDevice final : public gloo::transport::tcp::Device {
 public:
  explicit GlooPortDevice(const gloo::transport::tcp::attr& attr) : Device(attr) {}

  /// Sets the port of the next connection. Do not call it while a connection is being created.
  void listen_at(std::uint16_t port) {
    gloo::transport::tcp::attr changed = attr_;
    if (changed.ai_addr.ss_family == AF_INET6)
      reinterpret_cast<sockaddr_in6&>(changed.ai_addr).sin6_port = htons(port);
    else
      reinterpret_cast<sockaddr_in&>(changed.ai_addr).sin_port = htons(port);
    // attr_ is const, but a const member may be replaced as a whole (C++20, [basic.life]).
    auto* const own = const_cast<gloo::transport::tcp::attr*>(&attr_);
    std::destroy_at(own);
    std::construct_at(own, std::move(changed));
  }
};

}  // namespace lockstep::detail
