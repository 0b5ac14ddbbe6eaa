/// \file
/// A job in one process: each member in its own thread, over loopback.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <asio/post.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/member.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "support/deadline.hpp"

namespace lockstep::detail {

/// Operations on a member that only tests need.
struct RendezvousAccess {
  /// Closes the sockets without a message, as a killed process does.
  static void kill(Rendezvous& member) {
    asio::post(member.member_->io, [m = member.member_.get()] { m->role->abort(); });
  }
  /// Blocks the control thread, as in a stopped process.
  static void freeze(Rendezvous& member, std::chrono::milliseconds time) {
    asio::post(member.member_->io, [time] { std::this_thread::sleep_for(time); });
  }
};

}  // namespace lockstep::detail

namespace rendezvous_test {

using lockstep::PeerLost;
using lockstep::Phase;
using lockstep::Rendezvous;
using lockstep::RendezvousOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using Access = lockstep::detail::RendezvousAccess;
using testing::Deadline;

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// A free port below the ephemeral range.
inline std::uint16_t free_port() {
  thread_local std::mt19937 random{std::random_device{}()};
  for (;;) {
    const auto port = std::uniform_int_distribution<std::uint16_t>(12'000, 31'000)(random);
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port);
    const bool free = ::bind(s, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(s);
    if (free) return port;
  }
}

/// The log lines of all members.
struct Lines {
  std::mutex mutex;
  std::string all;
  auto sink() {
    return [this](lockstep::LogLevel, std::string_view line) {
      const std::scoped_lock lock(mutex);
      all.append(line).append("\n");
    };
  }
  /// The lines so far.
  std::string text() {
    const std::scoped_lock lock(mutex);
    return all;
  }
  auto count() {
    const std::string there = text();
    return std::count(there.begin(), there.end(), '\n');
  }
  /// Members write their lines on separate threads, so this waits for a while.
  bool contain(std::string_view part) {
    for (const auto end = Clock::now() + seconds(3); Clock::now() < end;) {
      if (text().find(part) != std::string::npos) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }
};

/// The options of rank `rank`, which can be changed before it joins.
inline RendezvousOptions options(std::size_t rank, std::size_t size, std::uint16_t port,
                                 Lines& lines, milliseconds deadline = milliseconds(20'000)) {
  RendezvousOptions result;
  result.cluster.source = "test";
  result.cluster.world_size = size;
  result.cluster.rank = rank;
  result.cluster.chief = lockstep::HostPort{"127.0.0.1", port};
  result.cluster.rendezvous_timeout = deadline;
  result.log = lines.sink();
  return result;
}

using Member = std::unique_ptr<Rendezvous>;

inline Member join(RendezvousOptions o) { return std::make_unique<Rendezvous>(std::move(o)); }

/// Joins all members concurrently.
inline std::vector<Member> join_all(
    std::size_t size, Lines& lines,
    const std::function<void(RendezvousOptions&)>& change = [](RendezvousOptions&) {}) {
  const std::uint16_t port = free_port();
  std::vector<std::future<Member>> futures;
  for (std::size_t r = 0; r < size; ++r) {
    auto o = options(r, size, port, lines);
    change(o);
    futures.push_back(std::async(std::launch::async, [o]() mutable { return join(std::move(o)); }));
  }
  std::vector<Member> members;
  for (auto& future : futures) members.push_back(future.get());
  return members;
}

/// Calls `f(member)` for each member in its own thread and returns when all have ended.
template <class F>
void in_each(std::vector<Member>& members, F f) {
  std::vector<std::thread> threads;
  for (Member& member : members)
    if (member) threads.emplace_back([&f, &member] { f(*member); });
  for (std::thread& thread : threads) thread.join();
}

/// CHECK for threads: assertions of Catch2 are not thread-safe.
inline void check_in_thread(bool holds) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  CHECK(holds);
}

/// Destroys all members concurrently, as processes do.
inline void leave_all(std::vector<Member>& members) {
  std::vector<std::thread> threads;
  for (Member& member : members) threads.emplace_back([&member] { member.reset(); });
  for (std::thread& thread : threads) thread.join();
}

/// The message of the Error that `f` throws; "no error" if none.
template <class Error, class F>
std::string sentence(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// A connection that does not belong to the job.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const timeval limit{5, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() { ::close(socket_); }

  bool connected() const { return connected_; }
  bool send(std::string_view bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  /// Returns the bytes that have arrived, at least one; empty after five silent seconds or at the end.
  std::string read_some() {
    std::array<char, 4096> chunk{};
    const ssize_t n = ::recv(socket_, chunk.data(), chunk.size(), 0);
    return {chunk.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  }
  /// All input until the other side closes the connection; empty after five silent seconds.
  std::string read_all() {
    std::string all;
    std::array<char, 1024> chunk{};
    for (ssize_t n; (n = ::recv(socket_, chunk.data(), chunk.size(), 0)) > 0;)
      all.append(chunk.data(), static_cast<std::size_t>(n));
    return all;
  }
  /// True if the other side closes the connection within five seconds.
  bool was_closed() {
    std::array<char, 1024> chunk{};
    ssize_t n = 1;
    while (n > 0) n = ::recv(socket_, chunk.data(), chunk.size(), 0);
    return n == 0 || errno == ECONNRESET;
  }

 private:
  int socket_;
  bool connected_ = false;
};

}  // namespace rendezvous_test
