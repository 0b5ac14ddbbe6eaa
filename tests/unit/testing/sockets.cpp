#include "unit/testing/sockets.hpp"

#include <poll.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/testing/run_workers.hpp"

namespace {

using namespace sockets;
using namespace std::chrono_literals;
using lockstep::testing::Network;
using lockstep::testing::run_workers;
using lockstep::testing::Worker;
using Body = void (*)(const Socket&, Worker&);

/// Rank 0 accepts, rank 1 connects; each then runs its part.
template <class Server, class Client>
lockstep::testing::Report connect_two(const Network& network, const Server& server,
                                      const Client& client) {
  return run_workers(
      2,
      [&](Worker& worker) {
        if (worker.rank() == 0) {
          const Socket door = listener(0);
          const Socket socket = accepted(door);
          server(socket, worker);
        } else {
          std::this_thread::sleep_for(1ms);
          const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
          REQUIRE(connect_to(socket, 0) == 0);
          client(socket, worker);
        }
      },
      network);
}

std::vector<char> pattern(std::size_t n) {
  std::vector<char> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(i * 131 % 251);
  return bytes;
}

void send_everything(const Socket& socket, const std::vector<char>& bytes) {
  REQUIRE(::send(socket.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

/// Reads until the end, or `most` bytes.
std::vector<char> receive_everything(const Socket& socket, std::size_t most = SIZE_MAX) {
  std::vector<char> bytes;
  char part[5000];
  while (bytes.size() < most) {
    const ssize_t n = ::recv(socket.fd, part, std::min(sizeof part, most - bytes.size()), 0);
    if (n <= 0) break;
    bytes.insert(bytes.end(), part, part + n);
  }
  return bytes;
}

}  // namespace

TEST_CASE("a stream arrives once and in order, also over a network that loses segments") {
  const std::vector<char> sent = pattern(3'000'000);
  for (const double loss : {0.0, 0.05, 0.3})
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      std::vector<char> received;
      const auto report = connect_two(
          {.seed = seed, .jitter = 1ms, .loss = loss},
          [&](const Socket& socket, Worker&) { received = receive_everything(socket); },
          [&](const Socket& socket, Worker&) { send_everything(socket, sent); });
      CHECK(received == sent);
      CHECK((report.lost > 0) == (loss > 0));
    }
}

TEST_CASE("latency and bandwidth take virtual time") {
  std::chrono::nanoseconds took{};
  connect_two(
      {.latency = 10ms, .bytes_per_second = 1e6},
      [&](const Socket& socket, Worker& worker) {
        receive_everything(socket, 1);
        const auto first = worker.time();
        receive_everything(socket);
        took = worker.time() - first;
      },
      [&](const Socket& socket, Worker&) { send_everything(socket, pattern(500'000)); });
  CHECK(took >= 420ms);  // the first segment has come
  CHECK(took <= 520ms);
}

TEST_CASE("a sender waits for a receiver that does not read") {
  std::chrono::nanoseconds sent_at{};
  connect_two(
      {},
      [&](const Socket& socket, Worker&) {
        std::this_thread::sleep_for(5s);
        CHECK(receive_everything(socket).size() == 8'000'000);
      },
      [&](const Socket& socket, Worker& worker) {
        send_everything(socket, pattern(8'000'000));
        sent_at = worker.time();
      });
  CHECK(sent_at >= 5s);
}

TEST_CASE("connections end as those of Linux") {
  SECTION("nobody listens") {
    run_workers(2, [](Worker& worker) {
      const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
      if (worker.rank() == 1) CHECK(connect_to(socket, 0) == ECONNREFUSED);
    });
  }
  SECTION("the peer closes") {
    connect_two(
        {}, [](const Socket& socket, Worker&) { CHECK(receive_everything(socket, 3).size() == 3); },
        [](const Socket& socket, Worker&) {
          send_everything(socket, pattern(3));
          char byte;
          CHECK(::recv(socket.fd, &byte, 1, 0) == 0);
        });
  }
  SECTION("the peer closes before it has read everything") {
    connect_two(
        {}, [](const Socket&, Worker&) { std::this_thread::sleep_for(1s); },
        [](const Socket& socket, Worker&) {
          send_everything(socket, pattern(3));
          char byte;
          CHECK(::recv(socket.fd, &byte, 1, 0) == -1);
          CHECK(errno == ECONNRESET);
          CHECK(::send(socket.fd, &byte, 1, MSG_NOSIGNAL) == -1);
          CHECK(errno == EPIPE);
        });
  }
  SECTION("one side shuts down") {
    connect_two(
        {},
        [](const Socket& socket, Worker&) {
          CHECK(receive_everything(socket).size() == 5);
          send_everything(socket, pattern(7));
        },
        [](const Socket& socket, Worker&) {
          send_everything(socket, pattern(5));
          REQUIRE(::shutdown(socket.fd, SHUT_WR) == 0);
          CHECK(receive_everything(socket).size() == 7);
        });
  }
  SECTION("the peer is killed") {
    connect_two(
        {.faults = {{1s, lockstep::testing::kill(0)}}},
        [](const Socket& socket, Worker&) { receive_everything(socket); },
        [](const Socket& socket, Worker& worker) {
          CHECK(receive_everything(socket).empty());
          CHECK((worker.time() >= 1s && worker.time() < 1010ms));
        });
  }
  SECTION("an address is in use") {
    run_workers(1, [](Worker&) {
      const Socket one = listener(0);
      CHECK_THROWS(listener(0));
      const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
      const sockaddr_in far = address_of(1);
      CHECK(::bind(socket.fd, reinterpret_cast<const sockaddr*>(&far), sizeof far) == -1);
      CHECK(errno == EADDRNOTAVAIL);
    });
  }
}

TEST_CASE("a partition is silence, which timeouts of TCP end") {
  const Network network{.faults = {{1s, lockstep::testing::partition({0}, {1})}}};
  const auto idle = [](const Socket&, Worker&) { std::this_thread::sleep_for(60s); };
  std::chrono::nanoseconds ended{};
  const auto wait_for_end = [&](const Socket& socket, Worker& worker) {
    char byte;
    CHECK(::recv(socket.fd, &byte, 1, 0) == -1);
    CHECK(errno == ETIMEDOUT);
    ended = worker.time();
  };
  SECTION("of data that are not acknowledged") {
    connect_two(network, idle, [&](const Socket& socket, Worker& worker) {
      socket.set(IPPROTO_TCP, TCP_USER_TIMEOUT, 2000);
      std::this_thread::sleep_for(1500ms);
      send_everything(socket, pattern(10));
      wait_for_end(socket, worker);
    });
    CHECK((ended >= 3400ms && ended <= 3700ms));
  }
  SECTION("of an idle connection") {
    connect_two(network, idle, [&](const Socket& socket, Worker& worker) {
      socket.set(SOL_SOCKET, SO_KEEPALIVE, 1);
      socket.set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
      socket.set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
      socket.set(IPPROTO_TCP, TCP_KEEPCNT, 3);
      wait_for_end(socket, worker);
    });
    CHECK((ended >= 4s && ended <= 6s));
  }
  SECTION("of a connection that is being made") {
    run_workers(
        2,
        [&](Worker& worker) {
          if (worker.rank() == 0) return std::this_thread::sleep_for(20s);
          std::this_thread::sleep_for(2s);
          const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
          socket.set(IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
          CHECK(connect_to(socket, 0) == ETIMEDOUT);
          CHECK((worker.time() >= 6900ms && worker.time() <= 7200ms));
        },
        network);
  }
  SECTION("none, if it heals in time") {
    Network healed = network;
    healed.faults.push_back({3s, lockstep::testing::heal()});
    std::vector<char> received;
    connect_two(
        healed,
        [&](const Socket& socket, Worker&) {
          received = receive_everything(socket, 10);
          std::this_thread::sleep_for(10s);
        },
        [&](const Socket& socket, Worker& worker) {
          std::this_thread::sleep_for(1500ms);
          send_everything(socket, pattern(10));
          std::this_thread::sleep_for(1s);
          CHECK(info_of(socket).tcpi_retransmits > 0);
          CHECK(info_of(socket).tcpi_last_ack_recv >= 2000);
          std::this_thread::sleep_for(3s);
          CHECK(info_of(socket).tcpi_retransmits == 0);
          CHECK(info_of(socket).tcpi_state == TCP_ESTABLISHED);
          CHECK(worker.time() > 5s);
        });
    CHECK(received == pattern(10));
  }
}

TEST_CASE("a machine answers for a process that is frozen") {
  connect_two(
      {.faults = {{1s, lockstep::testing::freeze(0)}, {20s, lockstep::testing::thaw(0)}}},
      [&](const Socket& socket, Worker&) { CHECK(receive_everything(socket).size() == 10); },
      [&](const Socket& socket, Worker&) {
        socket.set(IPPROTO_TCP, TCP_USER_TIMEOUT, 2000);
        std::this_thread::sleep_for(2s);
        send_everything(socket, pattern(10));
        std::this_thread::sleep_for(5s);
        CHECK(info_of(socket).tcpi_retransmits == 0);
        CHECK(info_of(socket).tcpi_unacked == 0);
      });
}

TEST_CASE("poll waits for several connections at once") {
  run_workers(3, [](Worker& worker) {
    if (worker.rank() > 0) {
      std::this_thread::sleep_for(worker.rank() * 1s);
      const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
      REQUIRE(connect_to(socket, 0) == 0);
      std::this_thread::sleep_for(10s / worker.rank());
      send_everything(socket, pattern(1));
      std::this_thread::sleep_for(30s);
      return;
    }
    const Socket door = listener(0);
    const Socket one = accepted(door), two = accepted(door);
    pollfd both[]{{one.fd, POLLIN, 0}, {two.fd, POLLIN, 0}};
    CHECK(::poll(both, 2, 1000) == 0);
    CHECK((worker.time() >= 3s && worker.time() < 3100ms));
    CHECK(::poll(both, 2, -1) == 1);
    CHECK(both[1].revents == POLLIN);
    CHECK((worker.time() >= 7s && worker.time() < 7100ms));
    CHECK(::poll(both, 1, -1) == 1);
    CHECK((worker.time() >= 11s && worker.time() < 11100ms));
  });
}

TEST_CASE("an address is shared by sockets that allow it, until one listens") {
  int plain = 0, reserved = 0, second = 0, listens = 0, third = 0, listens_too = 0;
  run_workers(1, [&](Worker&) {
    const sockaddr_in address = address_of(0);
    const auto bound = [&](const Socket& socket, bool shares) {
      if (shares) socket.set(SOL_SOCKET, SO_REUSEADDR, 1);
      return ::bind(socket.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0
                 ? 0
                 : errno;
    };
    const auto listening = [](const Socket& socket) {
      return ::listen(socket.fd, 1) == 0 ? 0 : errno;
    };
    const Socket a(::socket(AF_INET, SOCK_STREAM, 0)), b(::socket(AF_INET, SOCK_STREAM, 0)),
        c(::socket(AF_INET, SOCK_STREAM, 0)), d(::socket(AF_INET, SOCK_STREAM, 0));
    reserved = bound(a, true);
    plain = bound(b, false);
    second = bound(c, true);
    listens = listening(c);
    third = bound(d, true);
    listens_too = listening(a);
  });
  CHECK(reserved == 0);
  CHECK(plain == EADDRINUSE);
  CHECK(second == 0);
  CHECK(listens == 0);
  CHECK(third == EADDRINUSE);
  CHECK(listens_too == EADDRINUSE);
}
