#pragma once

#include "lockstep/collectives/tcp/tcp_health.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace lockstep::detail {

inline void set_option(int socket, int level, int name, int value) {
  (void)::setsockopt(socket, level, name, &value, sizeof value);
}

void TcpHealth::prepare(int socket, std::chrono::milliseconds limit) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  const int seconds = static_cast<int>(limit / std::chrono::seconds(1));
  const int interval = seconds / 100 + 1;
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, seconds / interval + 3);
}

bool TcpHealth::is_dead(int socket, TimePoint now, bool ran, std::chrono::milliseconds limit) {
  tcp_info info{};
  socklen_t length = sizeof info;
  const bool stuck = ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
                     info.tcpi_state == TCP_ESTABLISHED &&
                     (info.tcpi_retransmits > 0 || info.tcpi_probes > 0);
  if (!stuck) {
    stuck_since_.reset();
    return false;
  }
  // The kernel's clock has a resolution of up to 10 ms.
  const std::chrono::milliseconds silent(info.tcpi_last_ack_recv + 10);
  if (!ran || !stuck_since_ || silent < now - *stuck_since_) stuck_since_ = now;
  return now - *stuck_since_ >= limit;
}

}  // namespace lockstep::detail
