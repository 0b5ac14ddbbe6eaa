/// \file
/// Admission: accepts connections, and hands over those that prove that they belong to the job.
/// Invariants: a connection must send its Hello within the timeout, however it behaves until then;
/// at most 64 connections are pending, 8 from one source, and one more for each expected peer. A new
/// one replaces the least promising one, so that strangers cannot keep a worker out.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/connection.hpp"
#include "lockstep/cluster/network/hello.hpp"
#include "lockstep/cluster/network/source_allowlist.hpp"
#include "lockstep/cluster/network/stranger_log.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Accepts connections for the chief.
///
///     accept --source not in the allowlist--> closed, logged
///       |
///     pending_ --first byte 0x16--> TLS handshake with the job's key --+
///       |      --"LKS1"-----------> plain TCP, if there is no secret --+--> Hello --> admit()
///       |      --anything else----> closed, logged
///       |--timeout--> closed, logged
///       |--evicted by a newer connection--> closed
class Listener {
 public:
  /// Receives a connection and its Hello, which is unchecked beyond its format.
  using Admit = std::function<void(std::shared_ptr<Connection>, Hello)>;
  /// Receives a line to log.
  using Log = std::function<void(std::string_view)>;

  /// Receives a connection that has proved the job's key, instead of reading its Hello.
  using Proved = std::function<void(std::shared_ptr<Connection>)>;

  static constexpr std::size_t max_pending = 64, max_pending_per_source = 8;

  /// `psk` is null for a job without a secret. `timeout` is how long a connection may take to send
  /// its Hello. `admit` gets the connections that have sent it.
  LOCKSTEP_COLD_DECL Listener(asio::io_context& io, PskContext* psk, milliseconds timeout,
                              SourceAllowlist allowlist, Admit admit, Log log);
  Listener(const Listener&) = delete;  // handlers hold its address
  Listener& operator=(const Listener&) = delete;

  /// For connections that have no Hello: hands them over after the handshake.
  LOCKSTEP_COLD_DECL void hand_over_proved(Proved proved);
  /// Peers may connect all at once, also from one source: that many more may be pending.
  void expect_peers(std::size_t peers) { expected_peers_ = peers; }

  /// Listens at `endpoint`. `backlog` is the number of connections that may arrive at once.
  LOCKSTEP_COLD_DECL asio::error_code listen(const tcp::endpoint& endpoint, int backlog);
  /// True if `listen` has succeeded at least once.
  bool listening() const { return !acceptors_.empty(); }
  /// True if one of the addresses is IPv4.
  LOCKSTEP_COLD_DECL bool listens_by_ipv4() const;
  /// The port of an address, by default the first one.
  LOCKSTEP_COLD_DECL std::uint16_t port(std::size_t index = 0) const;
  /// True if connections wait for which the process has no file descriptor.
  bool out_of_files() const { return out_of_files_; }

  /// Sends a last frame to an admitted connection, and keeps the connection until the peer has read
  /// it.
  LOCKSTEP_COLD_DECL void send_and_close(const std::shared_ptr<Connection>& connection,
                                         const std::string& last_frame);

  /// Stops accepting. Connections of `send_and_close` stay, so that the peers can read the reason.
  LOCKSTEP_COLD_DECL void stop();
  /// True if no pending connection is open.
  LOCKSTEP_COLD_DECL bool idle() const;

  /// Called every heartbeat: closes overdue connections and accepts again after a shortage of
  /// descriptors.
  LOCKSTEP_COLD_DECL void tick(Clock::time_point now);
  /// Closes all pending connections and the listening sockets.
  LOCKSTEP_COLD_DECL void close();

  /// Logs a fact about a source, rate-limited.
  LOCKSTEP_COLD_DECL void log_source(const std::string& source, std::string_view fact,
                                     Clock::time_point now);
  /// The peer's IP address, as text.
  LOCKSTEP_COLD_DECL static std::string source_of(const Connection& connection);

 private:
  /// A connection without a Hello, or one that `send_and_close` keeps.
  struct Pending {
    std::shared_ptr<Connection> connection;
    std::string source;
    Clock::time_point since;
    bool closing = false, is_described = false, has_spoken = false;
  };
  using Acceptor = std::shared_ptr<tcp::acceptor>;

  /// Waits for the next connections of one acceptor.
  LOCKSTEP_COLD_DECL void accept(const Acceptor& acceptor);

  /// Accepts what is queued. False if the process has no free descriptor.
  LOCKSTEP_COLD_DECL bool accept_all(tcp::acceptor& acceptor);
  /// Logs the shortage, at most once in five seconds.
  LOCKSTEP_COLD_DECL void log_out_of_files(int error);
  /// Checks the source and waits for the first byte.
  LOCKSTEP_COLD_DECL void on_accepted(const std::shared_ptr<Connection>& connection);

  /// Chooses TLS, plain, or neither by the first byte.
  LOCKSTEP_COLD_DECL void detect_protocol(const std::shared_ptr<Connection>& connection,
                                          char first);
  /// Reads the Hello frame and calls `admit`.
  LOCKSTEP_COLD_DECL void read_hello(const std::shared_ptr<Connection>& connection);
  /// Logs `fact` and sends a Refuse with `sentence`, for a worker with the wrong kind of secret.
  LOCKSTEP_COLD_DECL void refuse(const std::shared_ptr<Connection>& connection,
                                 std::string_view fact, std::string_view sentence);
  /// Closes a connection that is not a worker's; logs `fact` unless it is empty.
  LOCKSTEP_COLD_DECL void reject(const std::shared_ptr<Connection>& connection,
                                 std::string_view fact);
  /// Forgets a connection without closing it.
  LOCKSTEP_COLD_DECL void remove(const std::shared_ptr<Connection>& connection);
  /// Closes the least promising pending connection if `source`, or all sources, are at the limit:
  /// the oldest of those with the lowest rank.
  /// \code
  ///   proved the key > from a described host > has sent something > silent
  /// \endcode
  LOCKSTEP_COLD_DECL void make_room(const std::string& source);
  /// That rank. A worker's first message arrives with its connection.
  LOCKSTEP_COLD_DECL int rank_of(Pending& pending);

  asio::io_context& io_;
  PskContext* psk_;
  milliseconds timeout_;
  SourceAllowlist allowlist_;
  Admit admit_;
  Proved proved_;
  Log log_;
  StrangerLog strangers_;
  std::vector<Acceptor> acceptors_, paused_;
  std::list<Pending> pending_;  // oldest first
  std::size_t expected_peers_ = 0;
  bool out_of_files_ = false;
  bool is_crowded_ = false;  // the limit was reached: described hosts are resolved
  Clock::time_point next_out_of_files_log_{};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/network/listener.ipp"
#endif
