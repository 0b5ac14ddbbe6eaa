/// \file
/// Measures the connections of a job: round trip, clock, and bandwidth in both directions. Invariants:
/// a worker measures one pair at a time; a pair that does not answer costs at most its deadline.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "doctor_facts.hpp"

namespace lockstep_doctor {

using SteadyClock = std::chrono::steady_clock;

/// The peer of `rank` in each round of a tournament in which each two of `size` ranks meet once;
/// nullopt: it has none in that round.
///
///     size 4   round 0: 0-3 1-2    round 1: 1-3 2-0    round 2: 2-3 0-1
///
inline std::vector<std::optional<std::size_t>> schedule(std::size_t rank, std::size_t size) {
  const std::size_t even = size + size % 2, last = even - 1;  // with an odd size one rank rests
  std::vector<std::optional<std::size_t>> peers;
  for (std::size_t round = 0; round < last; ++round) {
    std::size_t peer = last;
    // Rank `last` meets rank `round`; the others meet the rank that is as far on its other side.
    if (rank == last)
      peer = round;
    else if (rank != round)
      peer = (2 * round + last - rank) % last;
    peers.push_back(peer < size && rank < size ? std::optional(peer) : std::nullopt);
  }
  return peers;
}

/// Sends and receives on a socket of any mode until a deadline. \throws std::runtime_error
class PairLink {
 public:
  PairLink(int socket, SteadyClock::time_point deadline) : socket_(socket), deadline_(deadline) {}

  void wait_until(SteadyClock::time_point deadline) { deadline_ = deadline; }
  double seconds_left() const {
    return std::chrono::duration<double>(deadline_ - SteadyClock::now()).count();
  }

  void send(const void* from, std::size_t n) {
    const auto* p = static_cast<const char*>(from);
    while (n > 0) {
      const ssize_t sent = ::send(socket_, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (!moved(sent, POLLOUT)) continue;
      p += sent;
      n -= static_cast<std::size_t>(sent);
    }
  }
  void receive(void* to, std::size_t n) {
    auto* p = static_cast<char*>(to);
    while (n > 0) {
      const ssize_t got = ::recv(socket_, p, n, MSG_DONTWAIT);
      if (got == 0) throw std::runtime_error("the connection was closed");
      if (!moved(got, POLLIN)) continue;
      p += got;
      n -= static_cast<std::size_t>(got);
    }
  }
  template <class T>
  T receive() {
    T value{};
    receive(&value, sizeof value);
    return value;
  }

 private:
  /// Whether bytes moved; otherwise waits until some can.
  bool moved(ssize_t n, short event) {
    if (n > 0) return true;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
      throw std::runtime_error(std::strerror(errno));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - SteadyClock::now());
    if (left.count() <= 0) throw std::runtime_error(no_answer);
    pollfd waited{socket_, event, 0};
    ::poll(&waited, 1, static_cast<int>(left.count()));
    return false;
  }

  int socket_;
  SteadyClock::time_point deadline_;
};

/// Measures the pair of this worker and a peer. Both call it; the lower rank is `leads`.
///
///     leader                                         follower
///       'p', at most 40 times             ──────>   answers with its clock, in nanoseconds
///       'e', the round trip               ──────>
///       n, n bytes; n = 16 KiB, 32 KiB    ──────>   answers with 'a' to each
///       0, the rate that it has measured  ──────>
///       the same                         <──────    the same
///
class PairMeter {
 public:
  /// Less than this in bytes per second is measured for longer, so that a busy machine does not
  /// appear as a slow link.
  static constexpr double slow = 1e9 / 8;

  /// A pair whose connection does not answer costs the first; one that stops within a transfer, both.
  static constexpr std::chrono::milliseconds answer_limit{5'000}, transfer_limit{10'000};

  explicit PairMeter(int socket) : link_(socket, SteadyClock::now() + answer_limit) {}

  /// Fills in round trip, clock and bandwidths. \throws std::runtime_error
  void lead(PairFacts& pair) {
    measure_round_trips(pair);
    // Less than the follower waits, which would close the connection: that would look like its end.
    constexpr std::chrono::milliseconds margin{1'000};
    link_.wait_until(SteadyClock::now() + transfer_limit - margin);
    pair.to_b = send_parts(pair.round_trip, link_.seconds_left() / 2);
    pair.to_a = receive_parts();
  }
  /// The other side. \throws std::runtime_error
  void follow() {
    for (char kind = 0; (kind = link_.receive<char>()) == 'p';) {
      const std::int64_t now = wall_clock();
      link_.send(&now, sizeof now);
    }
    const auto round_trip = link_.receive<double>();
    link_.wait_until(SteadyClock::now() + transfer_limit);
    receive_parts();
    send_parts(round_trip, link_.seconds_left());
  }

  /// Whether a part that took `time` gives the rate. A part must be long against the round trip,
  /// which it contains, and there must be time for the next one, which may take twice as long.
  static bool is_long_enough(double time, double rate, double round_trip, double seconds_left) {
    constexpr double long_enough = 0.02, long_enough_if_slow = 0.1, round_trips = 10;
    const double least = rate < slow ? long_enough_if_slow : long_enough;
    return time >= std::max(least, round_trips * round_trip) || 4 * time > seconds_left;
  }

 private:
  static std::int64_t wall_clock() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  static double seconds(SteadyClock::duration time) {
    return std::chrono::duration<double>(time).count();
  }

  void measure_round_trips(PairFacts& pair) {
    constexpr std::size_t most = 40, least = 3;
    constexpr std::chrono::milliseconds enough{30};
    std::vector<double> times;
    double shortest = std::numeric_limits<double>::infinity();
    const auto end = SteadyClock::now() + enough;
    while (times.size() < most && (times.size() < least || SteadyClock::now() < end)) {
      const char ping = 'p';
      const std::int64_t before = wall_clock();
      const auto began = SteadyClock::now();
      link_.send(&ping, 1);
      const auto theirs = link_.receive<std::int64_t>();
      const double time = seconds(SteadyClock::now() - began);
      times.push_back(time);
      if (time >= shortest) continue;
      shortest = time;  // the peer read its clock somewhere between `before` and the answer
      pair.clock = static_cast<double>(theirs - before) * 1e-9 - time / 2;
      pair.clock_error = time / 2;
    }
    const char end_of_pings = 'e';
    link_.send(&end_of_pings, 1);
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                     times.end());
    pair.round_trip = times[times.size() / 2];
    link_.send(&pair.round_trip, sizeof pair.round_trip);
  }

  /// Sends twice as many bytes each time, until that takes long enough, for at most `most_seconds`.
  /// \returns bytes per second.
  double send_parts(double round_trip, double most_seconds) {
    const auto start = SteadyClock::now();
    constexpr std::size_t first = std::size_t{16} << 10, most = std::size_t{128} << 20,
                          piece = std::size_t{1} << 20;
    const std::vector<char> bytes(piece);
    double rate = 0;
    for (std::uint64_t n = first; n <= most; n *= 2) {
      link_.send(&n, sizeof n);
      const auto began = SteadyClock::now();
      for (std::uint64_t left = n; left > 0; left -= std::min<std::uint64_t>(left, piece))
        link_.send(bytes.data(), static_cast<std::size_t>(std::min<std::uint64_t>(left, piece)));
      link_.receive<char>();
      const double time = seconds(SteadyClock::now() - began);
      rate = static_cast<double>(n) / std::max(time, 1e-9);
      if (is_long_enough(time, rate, round_trip,
                         most_seconds - seconds(SteadyClock::now() - start)))
        break;
    }
    const std::uint64_t end = 0;
    link_.send(&end, sizeof end);
    link_.send(&rate, sizeof rate);
    return rate;
  }

  /// \returns the rate that the sender has measured.
  double receive_parts() {
    std::vector<char> bytes(std::size_t{1} << 20);
    while (const auto n = link_.receive<std::uint64_t>()) {
      for (std::uint64_t left = n; left > 0;) {
        const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(left, bytes.size()));
        link_.receive(bytes.data(), part);
        left -= part;
      }
      const char arrived = 'a';
      link_.send(&arrived, 1);
    }
    return link_.receive<double>();
  }

  PairLink link_;
};

}  // namespace lockstep_doctor
