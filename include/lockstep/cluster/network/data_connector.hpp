/// \file
/// Makes the data connections between the workers of a run. Invariants: no byte from a peer is
/// parsed as data before a TLS 1.3 handshake has proved that it has the key of the run and is the
/// rank that it claims; a stranger's connection is closed and costs nothing else; `connect` returns
/// or throws soon after its deadline, or at once after `cancel`.
#pragma once

#include <array>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/network/connection.hpp"
#include "lockstep/cluster/network/listener.hpp"
#include "lockstep/cluster/network/psk.hpp"
#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/cluster/network/timer.hpp"
#include "lockstep/concepts/data_connection.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// The options of a process that connects to its peers.
struct DataOptions {
  std::size_t rank = 0;
  std::vector<std::size_t> peers{};   ///< this process connects to lower ranks; the others to it
  std::size_t per_peer = 2;           ///< connections to each peer
  std::string address = "127.0.0.1";  ///< of this process, as its peers reach it
  /// Addresses of further interfaces, as many in all processes. The connections to a peer are in
  /// rows of `stripes`, of which number i uses address i modulo the number of addresses.
  std::vector<std::string> more_addresses{};
  std::size_t stripes = 1;
  std::optional<PortRange> ports{};  ///< one of them is used; nullopt: the system chooses
  std::string run{};                 ///< printable; names the run and these connections in it
  Secret key{};                      ///< of the run
  std::chrono::milliseconds silence = std::chrono::seconds(2);  ///< of the sockets, until connected
  std::function<void(std::string_view)> log = [](std::string_view) {};  ///< gets lines on strangers
};

/// Listens at one port if a peer is to connect, and connects to the others:
///
///     rank a                                            rank b > a
///       publishes place()                    ────────>  TCP, then TLS 1.3: identity "run b>a #0",
///       checks the identity and the key      <────────  key = HKDF(key of the run, identity)
///       one byte: TLS has ended              ────────>
///       keys of both directions              ========   the same, exported from the handshake
///
/// Rank a cannot know whether the byte arrives. If b loses the connection before, it connects again,
/// and the new connection replaces the old one while a still listens.
///
/// \code
///   lockstep::DataConnector connector({.rank = 1, .peers = {0, 2}, .run = run, .key = key});
///   store.set("place 1", connector.place());
///   auto connections = connector.connect({{0, store.get("place 0")}}, now + 10s,
///                                        [&] { store.barrier("connected"); });
/// \endcode
class DataConnector {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Begins to listen. \throws ClusterError if it cannot.
  LOCKSTEP_COLD_DECL explicit DataConnector(DataOptions options);
  DataConnector(const DataConnector&) = delete;
  DataConnector& operator=(const DataConnector&) = delete;
  LOCKSTEP_COLD_DECL ~DataConnector();

  /// Where peers connect to; empty if none is to.
  const std::string& place() const { return place_; }

  /// Connects to all peers; `places` are those of lower rank. Then calls `wait_for_all`, which
  /// returns when all peers have connected too, and listens until then. \throws CollectiveError if
  /// a peer does not connect in time, CollectiveAborted after `cancel`, and what `wait_for_all` does.
  LOCKSTEP_COLD_DECL std::vector<DataConnection> connect(
      const std::map<std::size_t, std::string>& places, TimePoint deadline,
      const std::function<void()>& wait_for_all);

  /// A peer that did not connect in time.
  struct Missing {
    std::size_t peer = 0;
    std::string fact{};  ///< "replica 1 could not connect to replica 0 at ... within 10 ms (...)"
  };
  /// The same without `wait_for_all`, but returns the connections that exist at the deadline, and
  /// fills `missing` with a peer for each that does not. \throws CollectiveAborted after `cancel`.
  LOCKSTEP_COLD_DECL std::vector<DataConnection> connect(
      const std::map<std::size_t, std::string>& places, TimePoint deadline,
      std::vector<Missing>& missing);

  /// Ends `connect`. Callable from any thread.
  LOCKSTEP_COLD_DECL void cancel();

 private:
  struct Attempt;
  static constexpr char welcome = 'w';

  LOCKSTEP_COLD_DECL std::string identity(std::size_t from, std::size_t to,
                                          std::size_t index) const;
  LOCKSTEP_COLD_DECL void listen();
  /// Adds an address to `place_`.
  LOCKSTEP_COLD_DECL void listen_at(const std::string& address, std::size_t index);
  LOCKSTEP_COLD_DECL const std::string& address_of(std::size_t connection) const;
  LOCKSTEP_COLD_DECL void on_proved(const std::shared_ptr<detail::Connection>& connection);
  LOCKSTEP_COLD_DECL void start(Attempt& attempt);
  LOCKSTEP_COLD_DECL void await_welcome(Attempt& attempt);
  /// Tries again in a moment.
  LOCKSTEP_COLD_DECL void retry(Attempt& attempt, const std::string& fact);
  /// Keeps a connection whose handshake is done.
  LOCKSTEP_COLD_DECL bool keep(detail::Connection& connection, std::size_t peer, std::size_t index,
                               bool is_server);
  LOCKSTEP_COLD_DECL void tick();
  /// Connects until all peers are connected or the deadline has passed.
  LOCKSTEP_COLD_DECL std::vector<Missing> connect_until(
      const std::map<std::size_t, std::string>& places, TimePoint deadline);
  /// Accepts connections while f() runs.
  LOCKSTEP_COLD_DECL void listen_during(const std::function<void()>& f);
  LOCKSTEP_COLD_DECL std::vector<DataConnection> take_connections();
  LOCKSTEP_COLD_DECL std::vector<Missing> missing(std::chrono::milliseconds waited) const;

  using Place = std::pair<std::size_t, std::size_t>;  // a peer and the index of a connection

  DataOptions options_;
  asio::io_context io_{1};
  detail::PskContext server_;
  detail::Listener listener_;
  detail::Timer ticks_, end_;
  std::string place_;
  std::map<std::string, Place> expected_;  // by identity
  std::vector<std::unique_ptr<Attempt>> attempts_;
  std::map<Place, DataConnection> connections_;
  bool cancelled_ = false, late_ = false;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/network/data_connector.ipp"
#endif
