#include "lockstep/collectives/tcp/tcp_health.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "lockstep/core/process/file_descriptor.hpp"

TEST_CASE("the kernel does not give up a connection before the configured silence") {
  using namespace std::chrono_literals;
  for (const std::chrono::seconds silence : {2s, 200s, std::chrono::seconds(24h)}) {
    CAPTURE(silence.count());
    const lockstep::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    lockstep::detail::TcpHealth::prepare(socket.number(), silence);
    const auto option = [&](int level, int name) {
      int value = -1;
      socklen_t length = sizeof value;
      return ::getsockopt(socket.number(), level, name, &value, &length) == 0 ? value : -1;
    };
    CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT) >= silence.count());
    CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);  // it counts time in which a peer is frozen
  }
}
