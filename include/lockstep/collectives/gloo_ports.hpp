/// \file
/// Lets Gloo listen at chosen ports. Invariant: each connection of a process waits for its peer at
/// a port of the range, and at no other.
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

struct GlooPorts {
  std::uint16_t first = 0, last = 0;  ///< 0: the system chooses

  bool given() const { return first != 0; }
  std::size_t size() const { return std::size_t{last} - first + 1; }
};

/// Gloo's device, whose next connection listens at a given port. Gloo (2022-05) has no setting for
/// it: each of its connections listens at the address of the device, whose port is 0.
class GlooPortDevice final : public gloo::transport::tcp::Device {
 public:
  explicit GlooPortDevice(const gloo::transport::tcp::attr& attr) : Device(attr) {}

  /// Not while a connection is made.
  void listen_at(std::uint16_t port) {
    gloo::transport::tcp::attr changed = attr_;
    if (changed.ai_addr.ss_family == AF_INET6)
      reinterpret_cast<sockaddr_in6&>(changed.ai_addr).sin6_port = htons(port);
    else
      reinterpret_cast<sockaddr_in&>(changed.ai_addr).sin_port = htons(port);
    // A constant member may be replaced as a whole (C++20, [basic.life]).
    auto* const own = const_cast<gloo::transport::tcp::attr*>(&attr_);
    std::destroy_at(own);
    std::construct_at(own, std::move(changed));
  }
};

}  // namespace lockstep::detail
